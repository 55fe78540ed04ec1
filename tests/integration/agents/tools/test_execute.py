"""Commands of an agent: once, bounded, found again after a crash, and asked about when nobody can know."""

import asyncio
import json
import os
import signal
from dataclasses import replace
from typing import Any

import pytest
from tests.integration.agents.policy.test_escapes import needs_sandbox
from tests.support.agents.phase import LANE, RUN_ID, Phase, is_sleeping
from tests.support.agents.scripted_model import ScriptedModel, asks, says
from tests.support.progress_limit import until

from holdfast.agents.tools.rules import command_rules, file_tool_rules
from holdfast.agents.tools.shell import open_shell, permit
from holdfast.flows.answers import decide
from holdfast.persona import Permissions, Verdict
from holdfast.runtime.events import Event
from holdfast.runtime.step import CancelRun, Suspended, idempotency_key
from holdfast.workspace import find_duration, spool_folder

KEY = f"{LANE}/m0.t0"


def script(command: str, **args: Any) -> ScriptedModel:
    return ScriptedModel(script=[asks(("execute", {"command": command, **args})), says("done")])


def options(phase: Phase) -> dict[str, Any]:
    spool_dir = phase.config.data_dir / "spool"
    return {
        "rules": {**file_tool_rules(phase.root), **command_rules(spool_dir)},
        "shell": open_shell(phase.root, data_dir=phase.config.data_dir),
    }


async def run(phase: Phase, model: ScriptedModel, **more: Any) -> Any:
    messages = await phase.play(build={"model": model}, text="Do it.", drain_s=0.1, **{**options(phase), **more})
    return messages[2]


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events if event.payload.get("key") == KEY]


async def test_a_command_runs_in_the_workspace_and_tells_its_exit_code(phase: Phase) -> None:
    answer = await run(phase, script("ls && echo more > new.txt && exit 3"))

    assert "README.md" in answer.content
    assert answer.artifact == {"exit_code": 3, "truncated": False}
    assert (phase.root / "new.txt").read_text() == "more\n"


async def test_what_changed_is_looked_at_after_a_command(phase: Phase) -> None:
    async def tree() -> dict[str, Any]:
        return {"tree": ",".join(sorted(path.name for path in phase.root.glob("*.txt")))}

    await run(phase, script("touch a.txt b.txt"), after_mutation=tree)

    result = next(event for event in phase.events() if event.kind == "tool.result")
    assert result.payload["result"]["tree"] == "a.txt,b.txt"


async def test_a_time_out_ends_everything_that_the_command_started(phase: Phase) -> None:
    answer = await run(phase, script("sleep 654 & echo begun; sleep 654", timeout=5))

    assert answer.artifact["exit_code"] == 124
    assert "begun" in answer.content
    assert "longer than 5 s" in answer.content
    assert not is_sleeping("654")


async def test_a_background_process_does_not_outlive_its_command(phase: Phase) -> None:
    answer = await run(phase, script("sleep 765 & echo started"))

    assert answer.artifact["exit_code"] == 0
    assert not is_sleeping("765")


async def test_a_long_output_is_cut(phase: Phase) -> None:
    answer = await run(phase, script("seq 1 200000"))

    assert len(answer.content) < 40_000
    assert answer.content.startswith("1\n2\n")
    assert answer.artifact["truncated"] is True


async def test_the_environment_of_the_engine_stays_with_it(phase: Phase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-planted")

    answer = await run(phase, script("env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | head -c 5000"))

    assert "PATH=" in answer.content
    if options(phase)["shell"].sandbox is not None:
        assert "sk-planted" not in answer.content
    assert "sk-planted" not in answer.content.partition("HOLDFAST_SPOOL")[0]


async def test_a_command_that_outlived_its_engine_is_found_again(phase: Phase) -> None:
    gate, begun = phase.root / "gate", phase.root / "begun"
    command = "echo start >> log; touch begun; while [ ! -e gate ]; do sleep 0.02; done; echo end >> log; cat log"
    task = asyncio.create_task(run(phase, script(command)))
    await until(begun.exists)
    await abandon(task)

    gate.touch()
    answer = await run(phase, script(command))

    assert answer.content.startswith("start\nend\n")
    assert (phase.root / "log").read_text() == "start\nend\n"
    assert kinds(phase.events()) == ["tool.started", "tool.unknown", "tool.started", "tool.result"]
    payload = next(event.payload for event in phase.events() if event.kind == "tool.unknown")
    assert payload["resolution"] == "reattached"
    own_s = find_duration(idempotency_key(RUN_ID, KEY), spool_dir=options(phase)["shell"].spool_dir)
    assert own_s is not None
    result = next(event.payload["result"] for event in phase.events() if event.kind == "tool.result")
    assert result["took_s"] == round(own_s, 3)


@pytest.mark.parametrize("action", ["rerun", "done", "abort"])
async def test_a_lost_command_is_asked_about_and_the_answer_counts(phase: Phase, action: str) -> None:
    await lose_a_command(phase)

    with pytest.raises(Suspended):
        await run(phase, script("echo x >> log; touch begun; sleep 876"))
    result = {"result": "it had said hello"} if action == "done" else {}
    await decide(RUN_ID, KEY, action, store=phase.store, **result)

    if action == "done":
        answer = await run(phase, script("echo x >> log; touch begun; sleep 876"))
        assert answer.content == "it had said hello"
        assert (phase.root / "log").read_text() == "x\n"
    elif action == "rerun":
        task = asyncio.create_task(run(phase, script("echo x >> log; touch begun; sleep 876")))
        await until(lambda: (phase.root / "log").read_text() == "x\nx\n")
        await abandon(task)
        await end_command(phase)
    else:
        with pytest.raises(CancelRun):
            await run(phase, script("echo x >> log; touch begun; sleep 876"))


@needs_sandbox
def test_a_command_that_reads_more_of_the_machine_may_find_a_socket_there(phase: Phase) -> None:
    shell = open_shell(phase.root, data_dir=phase.config.data_dir)
    opened = {"network": "deny", "readable": ["/opt"]}

    assert permit(shell, Permissions(network=Verdict.DENY)).changes_worktree_only
    assert not permit(shell, Permissions.model_validate(opened)).changes_worktree_only
    assert not permit(shell, Permissions(hosts=("localhost",))).changes_worktree_only
    assert not replace(shell, sandbox=None).changes_worktree_only


async def lose_a_command(phase: Phase) -> None:
    """Start a command, then end it and its runner together, as a power cut does."""
    task = asyncio.create_task(run(phase, script("echo x >> log; touch begun; sleep 876")))
    await until((phase.root / "begun").exists)
    await abandon(task)
    await end_command(phase)


async def end_command(phase: Phase) -> None:
    folder = spool_folder(phase.config.data_dir / "spool", f"{RUN_ID}:{KEY}")
    for who in ("runner", "leader"):
        os.kill(json.loads((folder / "pid.json").read_text())[who][0], signal.SIGKILL)
    await until(lambda: not is_sleeping("876"))


async def abandon(task: "asyncio.Task[Any]") -> None:
    """As a shutdown does: nobody waits for the call any more."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
