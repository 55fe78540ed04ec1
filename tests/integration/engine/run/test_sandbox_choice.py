"""What contains the commands of a run: the journal says it, and only a person goes without."""

from typing import Any

import pytest
from tests.integration.agents.policy.test_escapes import needs_sandbox
from tests.support.engine_world import Turn, World, personas, template

import holdfast.engine
from holdfast.agents.build import build_agent
from holdfast.agents.tools.shell import granted_shell, probe_once
from holdfast.engine.conversation.journal import ROLE, conversation_template
from holdfast.enums import Backend, RunStatus
from holdfast.errors import RunNotInState
from holdfast.persona import AgentPersona
from holdfast.presentation.trace import RunTrace
from holdfast.workspace import SandboxProbe

NONE = {"find_sandbox": lambda: SandboxProbe(None, "there is none for this test")}


def commanding(*lines: str) -> Any:
    """An agent that runs lines and hands in what they printed."""

    async def script(turn: Turn) -> None:
        for line in lines:

            async def run(line: str = line) -> str:
                shell = granted_shell()
                assert shell is not None
                return (await shell.run(line, timeout_s=60)).output

            answer = await turn.use_tool("execute", run, command=line)
            turn.write("answer.txt", str(getattr(answer, "content", answer)))
        turn.hand_in()

    return script


def started(world: World, run_id: Any) -> dict[str, Any]:
    (event,) = world.events(run_id, "run.started")
    return {name: event.payload[name] for name in ("sandbox", "unsandboxed_by") if name in event.payload}


async def test_the_journal_says_what_contains_the_commands(world: World) -> None:
    result = await world.run()

    assert started(world, result.run_id) == {"sandbox": probe_once().kind}
    trace = RunTrace.of(world.events(result.run_id))
    assert (trace.progress.sandbox, trace.progress.unsandboxed_by) == (probe_once().kind, None)


async def test_without_a_sandbox_a_command_waits_for_a_person(world: World) -> None:
    script = commanding("cat app.py", "echo made > made.txt")

    waiting = await world.run(script, engine=NONE)

    assert (waiting.state, waiting.waiting_for) == (RunStatus.PAUSED, "approval")
    assert started(world, waiting.run_id) == {"sandbox": "none"}
    root = world.worktree(waiting.run_id)
    assert "hello" in (root / "answer.txt").read_text(), "a plain look at a file needs nobody"
    assert not (root / "made.txt").exists()
    [approval] = await world.approvals(waiting.run_id)
    assert "no sandbox is in force on this machine, so" in approval.shown["question"]
    assert approval.shown["policy"]["rule"] == "no-sandbox"

    await world.engine(script, **NONE).decide(waiting.run_id, approval.id, "approve", by="ann", digest=approval.digest)
    done = await world.engine(script, **NONE).resume(waiting.run_id)

    assert done.state is RunStatus.COMPLETED
    assert (root / "made.txt").read_text() == "made\n"


async def test_a_person_may_choose_to_go_without_a_sandbox(world: World) -> None:
    script = commanding("echo made > made.txt")

    result = await world.run(script, engine=NONE, started_by="ann", is_unsandboxed=True)

    assert result.state is RunStatus.COMPLETED
    assert started(world, result.run_id) == {"sandbox": "none", "unsandboxed_by": "ann"}
    (created,) = world.events(result.run_id, "run.created")
    assert (created.payload["unsandboxed"], created.payload["started_by"]) == (True, "ann")


@needs_sandbox
async def test_whoever_chose_that_has_no_sandbox_even_where_there_is_one(world: World) -> None:
    look = commanding("printenv HOLDFAST_AGENT_COMMAND || echo free")

    contained = await world.run(look)
    free = await world.run(look, started_by="ann", is_unsandboxed=True)

    answers = [(world.worktree(run.run_id) / "answer.txt").read_text() for run in (contained, free)]
    assert answers == ["1\n", "free\n"]


async def test_the_choice_can_be_made_when_a_run_is_resumed(world: World) -> None:
    script = commanding("echo made > made.txt")
    waiting = await world.run(script, engine=NONE)
    [approval] = await world.approvals(waiting.run_id)
    await world.engine(script, **NONE).decide(waiting.run_id, approval.id, "reject", comment="not so", by="ann")

    done = await world.engine(script, **NONE).resume(waiting.run_id, is_unsandboxed=True, by="ben")

    assert done.state is RunStatus.COMPLETED
    assert not (world.worktree(waiting.run_id) / "made.txt").exists(), "what a person rejected stays rejected"
    (changed,) = world.events(waiting.run_id, "run.changed")
    assert (changed.payload["unsandboxed"], changed.payload["by"], changed.payload["reopened"]) == (True, "ben", [])
    (resumed,) = world.events(waiting.run_id, "run.resumed")
    assert (resumed.payload["sandbox"], resumed.payload["unsandboxed_by"]) == ("none", "ben")


async def test_a_fork_does_not_inherit_the_choice(world: World) -> None:
    first = await world.run(engine=NONE, started_by="ann", is_unsandboxed=True)

    fork = await world.engine(**NONE).fork(first.run_id, "spec", started_by="ben")
    chosen = await world.engine(**NONE).fork(first.run_id, "spec", started_by="ben", is_unsandboxed=True)

    assert started(world, fork.run_id) == {"sandbox": "none"}
    assert started(world, chosen.run_id) == {"sandbox": "none", "unsandboxed_by": "ben"}


async def test_the_choice_can_be_made_in_a_conversation_and_nothing_else_changed(world: World) -> None:
    persona = next(each for each in personas() if each.backend is Backend.OPENROUTER)
    talk = await world.engine(**NONE).run(
        conversation_template(), repo_path=world.repo, persona_overrides={ROLE: persona.name}
    )

    await world.engine(**NONE).change(talk.run_id, is_unsandboxed=True, by="ann")

    (changed,) = world.events(talk.run_id, "run.changed")
    assert (changed.payload["unsandboxed"], changed.payload["by"]) == (True, "ann")
    with pytest.raises(RunNotInState):
        await world.engine(**NONE).change(talk.run_id, requirements_md="other", by="ann")


@pytest.mark.parametrize("sandbox", [{"enabled": True}, False])
async def test_a_coding_agent_without_a_sandbox_waits_for_a_person(world: World, sandbox: Any) -> None:
    """Because the machine has none, or because its persona switches it off."""
    fields = {"name": "tool", "version": 1, "backend": "command", "capabilities": ["spec_write"], "sandbox": sandbox}
    pool = (AgentPersona.model_validate({**fields, "argv": ["/bin/sh", "-c", "echo x > made.txt"]}),)
    options: dict[str, Any] = {"pool": pool, "backends": frozenset({Backend.COMMAND}), **(NONE if sandbox else {})}
    engine = world.engine(**options)
    holdfast.engine.build_agent = build_agent

    waiting = await engine.run(template("spec"), repo_path=world.repo)

    [approval] = await world.approvals(waiting.run_id)
    cause = "no sandbox is in force on this machine" if sandbox else "its persona switches the sandbox off"
    assert cause in approval.shown["question"]
    assert "/bin/sh could do all that you can" in approval.shown["question"]
    assert not (world.worktree(waiting.run_id) / "made.txt").exists()
    assert started(world, waiting.run_id) == {"sandbox": "none" if sandbox else probe_once().kind}

    await engine.resume(waiting.run_id, is_unsandboxed=True, by="ann")
    [still] = await world.approvals(waiting.run_id)
    assert still.id == approval.id, "what was asked before is answered by a person"
