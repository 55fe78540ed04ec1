"""The simulated model among other work: what it is asked to make may take long, and nobody else waits for that."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from holdfast.agents.simulated.model import SimulatedChatModel


class WatchedModel(SimulatedChatModel):
    """Notes in which thread an answer is made."""

    threads: list[threading.Thread]

    def _answer(self, messages: list[BaseMessage], tools: Sequence[Any]) -> tuple[AIMessage, bool]:
        self.threads.append(threading.current_thread())
        return super()._answer(messages, tools)


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_an_answer_is_not_made_on_the_event_loop(is_streamed: bool) -> None:
    model = WatchedModel(model="rehearsal-1", priced_as="rehearsal-1", threads=[], streaming=is_streamed)
    messages = [HumanMessage("Hello.")]

    if is_streamed:
        assert [chunk async for chunk in model.astream(messages)]
    else:
        assert (await model.ainvoke(messages)).text

    assert model.threads
    assert threading.main_thread() not in model.threads
