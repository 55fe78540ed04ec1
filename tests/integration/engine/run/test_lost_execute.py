"""F1 for `execute`: a command of an agent in flight in one place, and what another place makes of it."""

import asyncio
from typing import Any

import pytest
from tests.integration.agents.policy.test_escapes import needs_sandbox
from tests.support.engine_world import Turn, World, personas, phase, template
from tests.support.progress_limit import until

from holdfast.agents.tools.shell import granted_shell
from holdfast.enums import RunStatus
from holdfast.errors import LeaseLost
from holdfast.persona import AgentPersona
from holdfast.workspace import list_commands

IN_THE_WORKTREE = "echo begun >> begun.txt; pwd | grep -q '.a.data.worktrees' && sleep 1000; echo done > done.txt"
WITH_NETWORK = f"curl --version > curl.txt; {IN_THE_WORKTREE}"


def executing(line: str) -> Any:
    """An agent that makes a file with a tool, runs a line, and hands in."""

    async def run() -> str:
        shell = granted_shell()
        assert shell is not None
        return (await shell.run(line, timeout_s=None)).output

    async def script(turn: Turn) -> None:
        await turn.use_tool("write_file", lambda: turn.write("before.txt", "recorded\n"))
        await turn.use_tool("execute", run, command=line)
        turn.hand_in()

    return script


def persona(**changes: Any) -> AgentPersona:
    [author] = [one for one in personas() if one.name == "openrouter-deepseek-spec-writer"]
    return AgentPersona.model_validate({**author.model_dump(mode="json", by_alias=True), **changes})


async def leave(worlds: tuple[World, World], line: str, who: AgentPersona, **options: Any) -> str:
    """Begin the command in the first place, and let the second one take the run."""
    here, there = worlds
    made = there.know(here.know(template(phase("spec"))))
    engine = here.engine(executing(line), pool=(who,), carry_files=True)
    driving = asyncio.create_task(engine.run(made, repo_path=here.repo, **options))
    await until(lambda: driving.done() or [*here.data_dir.glob("worktrees/*/begun.txt")])
    assert not driving.done(), driving.result()
    [run_id] = here.db.store.list_runs()
    taken = there.db.store.claim(run_id, force=True)
    with pytest.raises(LeaseLost):
        await driving
    assert list_commands(here.data_dir / "spool") == []
    there.db.store.release(taken)
    return run_id


def read_starts(world: World, run_id: str) -> list[tuple[str, bool]]:
    """In which data directory each start of the command was, and whether nothing outside could come of it."""
    starts = [event.payload for event in world.events(run_id, "tool.started") if event.payload["tool"] == "execute"]
    return [(start["place"]["data"], start["place"]["is_contained"]) for start in starts]


def place_of(world: World) -> str:
    return (world.data_dir / ".place").read_text()


def check_files(world: World, run_id: str) -> None:
    root = world.worktree(run_id)
    assert (root / "before.txt").read_text() == "recorded\n"
    assert (root / "begun.txt").read_text() == "begun\n"  # what the first start wrote was in the worktree that is gone
    assert (root / "done.txt").exists()


@needs_sandbox
async def test_f1_a_contained_command_runs_again_unasked_in_another_place(worlds: tuple[World, World]) -> None:
    here, there = worlds
    run_id = await leave(worlds, IN_THE_WORKTREE, persona())

    result = await there.engine(executing(IN_THE_WORKTREE), pool=(persona(),), carry_files=True).resume(run_id)

    assert result.state is RunStatus.COMPLETED, result.error
    assert read_starts(there, run_id) == [(place_of(here), True), (place_of(there), True)]
    key = there.events(run_id, "tool.started")[-1].payload["key"]
    unknown = [event.payload for event in there.events(run_id, "tool.unknown")]
    assert [each["resolution"] for each in unknown if each["key"] == key] == ["rerun"]
    assert await there.approvals(run_id, "") == []
    check_files(there, run_id)


@pytest.mark.parametrize("why", [pytest.param("network", marks=needs_sandbox), "unsandboxed"])
async def test_f1_of_a_command_that_could_reach_more_a_person_is_asked(worlds: tuple[World, World], why: str) -> None:
    here, there = worlds
    line = WITH_NETWORK if why == "network" else IN_THE_WORKTREE
    who = persona(permissions={"network": "allow"}) if why == "network" else persona()
    run_id = await leave(worlds, line, who, is_unsandboxed=why == "unsandboxed")

    engine = there.engine(executing(line), pool=(who,), carry_files=True)
    waiting = await engine.resume(run_id)

    assert (waiting.state, waiting.waiting_for) == (RunStatus.PAUSED, "outcome")
    assert not [*there.data_dir.glob("worktrees/*/begun.txt")]
    [question] = await there.approvals(run_id)
    [first] = [event for event in there.events(run_id, "tool.started") if event.payload["tool"] == "execute"]
    assert question.shown["args"] == {"command": line}
    assert question.shown["place"] == first.payload["place"]
    assert question.shown["place"].keys() == {"data", "boot", "host", "at", "is_contained"}
    assert question.shown["place"]["data"] == place_of(here)
    assert question.shown["place"]["at"] > 0

    await engine.decide(run_id, question.id, "approve")
    result = await engine.resume(run_id)

    assert result.state is RunStatus.COMPLETED, result.error
    assert read_starts(there, run_id) == [(place_of(here), False), (place_of(there), False)]
    check_files(there, run_id)


@pytest.mark.parametrize("why", [pytest.param("network", marks=needs_sandbox), "unsandboxed"])
async def test_f1_a_command_whose_persona_says_so_runs_again_whatever_it_could_reach(
    worlds: tuple[World, World], why: str
) -> None:
    here, there = worlds
    line = WITH_NETWORK if why == "network" else IN_THE_WORKTREE
    who = persona(on_lost="rerun", **({"permissions": {"network": "allow"}} if why == "network" else {}))
    run_id = await leave(worlds, line, who, is_unsandboxed=why == "unsandboxed")

    result = await there.engine(executing(line), pool=(who,), carry_files=True).resume(run_id)

    assert result.state is RunStatus.COMPLETED, result.error
    assert read_starts(there, run_id) == [(place_of(here), False), (place_of(there), False)]
    assert await there.approvals(run_id, "") == []
    check_files(there, run_id)
