"""What models were sent can be read from the journal: whole, each part once, without secrets, or not at all."""

import asyncio
import json
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from tests.support.agents.phase import LANE, Phase
from tests.support.agents.scripted_model import ScriptedModel, asks, says

from holdfast.agents.redaction import SECRETS
from holdfast.presentation.model_call import describe_model_call
from holdfast.runtime.events import EventKind


class Listener(ScriptedModel):
    """Remembers what it is sent."""

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        HEARD.append([message.text for message in messages])
        return super()._generate(messages, *args, **kwargs)


HEARD: list[list[str]] = []


def listener() -> BaseChatModel:
    HEARD.clear()
    look = [asks(("ls", {"path": "/"})), asks(("read_file", {"file_path": "/README.md"}))]
    return Listener(script=[*look, says("Done.")])


async def test_each_call_tells_all_that_its_model_has_heard(phase: Phase) -> None:
    await phase.play(build={"model": listener()}, text="Look around.")

    for number, heard in enumerate(HEARD):
        detail = describe_model_call(phase.events(), f"{LANE}/m{number}")
        assert detail.system.split() == heard[0].split()
        assert [message.text for message in detail.messages] == heard[1:]
        assert "read_file" in [tool.name for tool in detail.tools]
    assert [message.role for message in detail.messages] == ["Person", "Model", "Tool", "Model", "Tool"]
    assert [message.is_new for message in detail.messages] == [False, False, False, True, True]
    assert detail.summary.startswith("5 messages, 2 of them new; ")
    assert detail.messages[1].calls[0].name == "ls"
    assert detail.answer == "Done."


async def test_a_part_is_stored_once_and_an_answer_only_as_the_answer(phase: Phase) -> None:
    await phase.play(build={"model": listener()}, text="Look around.")

    sent = [event.payload["sent"] for event in phase.events() if event.kind == EventKind.MODEL_REQUEST]
    assert [len(each.get("parts", {})) for each in sent] == [
        3,
        0,
        0,
    ]  # the person's words, the system prompt, the tools
    assert [each["adds"] for each in sent[1:]] == [
        [f"{LANE}/m0", f"{LANE}/m0.t0"],
        [f"{LANE}/m1", f"{LANE}/m1.t0"],
    ]
    assert all("tools" not in each and "settings" not in each for each in sent[1:])


async def test_after_a_crash_the_next_call_goes_on_from_what_was_sent_before(phase: Phase) -> None:
    third_call = asyncio.Event()

    class Silent(Listener):
        async def _agenerate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            if len(messages) > 4:
                third_call.set()
                await asyncio.Event().wait()
            return self._generate(messages)

    script = [asks(("ls", {"path": "/"})), asks(("ls", {"path": "/src"})), says("Done.")]
    work = asyncio.create_task(phase.play(build={"model": Silent(script=script)}, text="Look around.", drain_s=0))
    await third_call.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    await phase.play(build={"model": Listener(script=script)}, text="Look around.")

    detail = describe_model_call(phase.events(), f"{LANE}/m2")
    assert [message.role for message in detail.messages] == ["Person", "Model", "Tool", "Model", "Tool"]
    assert "(not in the journal)" not in [message.text for message in detail.messages]


async def test_secrets_are_not_in_what_is_stored(phase: Phase) -> None:
    SECRETS.learn("hunter2-hunter2")

    await phase.play(build={"model": listener()}, text="The password is hunter2-hunter2.")

    stored = json.dumps([event.to_dict() for event in phase.events()])
    assert "hunter2-hunter2" not in stored
    assert describe_model_call(phase.events(), f"{LANE}/m0").messages[0].text == "The password is [secret]."


async def test_a_setting_leaves_it_out(phase: Phase) -> None:
    await phase.play(build={"model": listener()}, text="Look around.", keeps_prompts=False)

    assert all("sent" not in event.payload for event in phase.events())
    detail = describe_model_call(phase.events(), f"{LANE}/m0")
    assert "keep_prompts" in detail.note
    assert detail.calls[0].name == "ls"
    assert "no model call" in describe_model_call(phase.events(), "nothing").note
