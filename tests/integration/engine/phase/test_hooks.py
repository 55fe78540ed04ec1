"""Commands before and after tool calls: they refuse, they add to the answer, and they run once."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from pydantic import ValidationError
from tests.support.engine_world import Turn, World, template

from holdfast.enums import RunStatus
from holdfast.workflow import WorkflowTemplate


def with_hooks(log: Path, *hooks: dict[str, Any]) -> WorkflowTemplate:
    note = f"echo $HOLDFAST_TOOL $HOLDFAST_TOOL_PATH >> {log}"
    made = [{**hook, "run": ["sh", "-c", f"{note}; {hook['run']}"]} for hook in hooks]
    return template("spec", hooks=made, sandbox=False)  # what they do is counted outside of the worktree


def writing(answers: list[str]) -> Any:
    async def script(turn: Turn) -> None:
        def write() -> ToolMessage:
            (turn.root / "a.txt").write_text("as the agent wrote it\n")
            return ToolMessage(content="written", name="write_file", tool_call_id="call-write_file")

        answer = await turn.use_tool("write_file", write, file_path="/a.txt", content="…")
        answers.append(str(answer.content))
        turn.hand_in()

    return script


async def test_a_hook_after_a_call_changes_files_and_its_words_reach_the_agent(world: World, tmp_path: Path) -> None:
    answers: list[str] = []
    made = with_hooks(tmp_path / "log", {"after": ["write_file"], "run": "echo formatted > a.txt; echo I formatted it"})

    result = await world.run(writing(answers), template=made)

    assert result.state is RunStatus.COMPLETED
    assert (tmp_path / "log").read_text() == "write_file a.txt\n"
    assert answers == [f"written\n\nThe hook `sh -c {made.hooks[0].run[2]}` says:\nI formatted it"]
    [after] = [e for e in world.events(result.run_id, "tool.result") if "after1" in e.payload["key"]]
    [done] = world.events(result.run_id, "phase.completed")
    assert world.git("show", f"{after.payload['result']['tree']}:a.txt") == "formatted"
    assert world.git("show", f"{done.payload['tree']}:a.txt") == "formatted"


async def test_a_hook_before_a_call_that_fails_keeps_it_away(world: World, tmp_path: Path) -> None:
    answers: list[str] = []
    hooks = [
        {"before": ["write_file"], "run": "echo not on a Friday; exit 3"},
        {"after": ["write_file"], "run": "true"},
    ]

    result = await world.run(writing(answers), template=with_hooks(tmp_path / "log", *hooks))

    assert result.state is RunStatus.COMPLETED
    assert "not on a Friday" in answers[0]
    assert "exit code 3" in answers[0]
    assert not (world.worktree(result.run_id) / "a.txt").exists()
    assert (tmp_path / "log").read_text() == "write_file a.txt\n", "nothing comes after a call that was not made"


async def test_a_resumed_run_repeats_no_hook_and_its_agent_reads_the_same(world: World, tmp_path: Path) -> None:
    answers: list[str] = []
    hooks = [{"before": ["write_file"], "run": "true"}, {"after": ["write_file"], "run": "echo well done"}]
    made = with_hooks(tmp_path / "log", *hooks)

    run_id = await world.run_and_stop(writing(answers), template=made)
    result = await world.engine(writing(answers)).resume(run_id)

    assert result.state is RunStatus.COMPLETED
    assert answers[0] == answers[1]
    assert (tmp_path / "log").read_text() == "write_file a.txt\n" * 2, "once before, once after"


@pytest.mark.parametrize(
    "hook", [{"run": ["x"]}, {"before": ["a"], "after": ["b"], "run": ["x"]}, {"after": ["a"], "run": []}]
)
def test_a_hook_that_names_no_tools_or_no_command_is_refused(hook: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="hooks"):
        template("spec", hooks=[hook])


def test_hooks_are_among_the_commands_that_a_person_consents_to() -> None:
    assert template("spec", hooks=[{"after": ["execute"], "run": ["make", "format"]}]).commands == [("make", "format")]
