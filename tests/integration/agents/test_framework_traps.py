"""What the framework would do by itself, and must not: rewrite a prompt, lose a refusal, leave a helper unwatched."""

from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatResult
from tests.support.agents.phase import LANE, Phase, essence, outcomes
from tests.support.agents.scripted_model import ScriptedModel, asks, says

LONG_TEXT = "All of this is wanted. " * 12_000  # over the 50,000 tokens from which the framework would put it in a file
HELP = {"description": "Your part of it.", "subagent_type": "general-purpose"}


class WithHelper(ScriptedModel):
    """Speaks for the agent, and by another script for its subagent."""

    helper_script: list[Any]

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        is_helper = any(message.type == "human" and message.content == HELP["description"] for message in messages)
        speaker = ScriptedModel(script=self.helper_script if is_helper else self.script)
        return speaker._generate(messages)


async def test_a_long_task_stays_in_the_conversation_as_it_is(phase: Phase) -> None:
    before = phase.files()
    script = [asks(("ls", {"path": "/"})), says("done")]

    live = await phase.play(text=LONG_TEXT, build={"model": ScriptedModel(script=script)})
    replayed = await phase.play(text=LONG_TEXT, build={"model": ScriptedModel(script=[])})

    assert live[0].content == LONG_TEXT
    assert essence(replayed) == essence(live)
    assert phase.files() == before


async def test_a_call_that_cannot_be_made_is_told_to_the_agent_and_replayed(phase: Phase) -> None:
    rubbish = asks(("no_such_tool", {"a": 1}), ("write_file", {"content": "x"}))

    live = await phase.play(text="Go.", build={"model": ScriptedModel(script=[rubbish, says("done")])})
    replayed = await phase.play(text="Go.", build={"model": ScriptedModel(script=[])})

    assert [message.status for message in live if message.type == "tool"] == ["error", "error"]
    assert {f"{LANE}/m0.t0", f"{LANE}/m0.t1"} <= set(outcomes(phase.events()))
    assert essence(replayed) == essence(live)


async def test_of_two_changes_to_one_file_in_one_answer_each_has_its_outcome(phase: Phase) -> None:
    both = asks(
        ("write_file", {"file_path": "/a.md", "content": "first"}),
        ("write_file", {"file_path": "/a.md", "content": "second"}),
    )

    live = await phase.play(text="Go.", build={"model": ScriptedModel(script=[both, says("done")])})
    written = (phase.root / "a.md").read_text()
    replayed = await phase.play(text="Go.", build={"model": ScriptedModel(script=[])})

    assert [message.status for message in live if message.type == "tool"] == ["success", "error"]
    assert written == "first"
    assert essence(replayed) == essence(live)


async def test_a_subagent_is_bound_by_the_same_policy(phase: Phase) -> None:
    reach_out = asks(("write_file", {"file_path": "/.git/config", "content": "x"}))
    model = WithHelper(script=[asks(("task", HELP)), says("done")], helper_script=[reach_out, says("I could not.")])

    await phase.play(text="Go.", build={"model": model})

    assert not (phase.root / ".git").exists()
    inner = [event for event in phase.events() if event.payload.get("key") == f"{LANE}/m0.t0/m0.t0"]
    assert [event.payload["policy"]["verdict"] for event in inner if "policy" in event.payload] == ["deny"]
