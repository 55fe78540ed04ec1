"""The middleware driven directly, with requests of which only `tool_call` is real."""

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from langchain_core.messages import ToolMessage
from tests.support.agents.phase import LANE, RUN_ID, Phase, open_log

from holdfast.agents.calls.codec import OPAQUE_TEXT
from holdfast.agents.tools.rules import ToolRule
from holdfast.errors import Nondeterminism
from holdfast.flows.answers import decide
from holdfast.runtime.step import Stopped, Suspended


def request(name: str = "send", call_id: str = "c1", **args: Any) -> Any:
    return SimpleNamespace(tool_call={"name": name, "args": args, "id": call_id})


class Handler:
    def __init__(self, result: Any = None) -> None:
        self.result = result
        self.calls: list[Any] = []

    async def __call__(self, tool_request: Any) -> Any:
        self.calls.append(tool_request.tool_call)
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


async def drive(phase: Phase, handler: Any, *requests: Any, **options: Any) -> list[Any]:
    async with open_log(phase.store) as log:
        journal = phase.middleware(log, **options)
        try:
            return [await journal.awrap_tool_call(tool_request, handler) for tool_request in requests]
        finally:
            await journal.drain()


async def test_a_stand_in_is_recorded_and_replayed_by_its_place(phase: Phase) -> None:
    message = ToolMessage("sent", tool_call_id="c1", artifact={"n": (1, 2)})
    live = await drive(phase, Handler(message), request(to="a"), request(to="b"))

    handler = Handler(message)
    replayed = await drive(phase, handler, request(to="a"), request(to="b"))

    assert live == replayed == [message, message]
    assert handler.calls == []
    assert [e.payload["key"] for e in phase.events() if e.kind == "tool.result"] == [f"{LANE}/x0", f"{LANE}/x1"]


async def test_rubbish_beside_the_call_does_not_matter(phase: Phase) -> None:
    rubbish = MagicMock(tool_call={"name": "send", "args": {"to": "a"}, "id": "c1"})
    odd = SimpleNamespace(tool_call={"name": "send", "args": {"to": "b"}, "id": None}, state={"messages": "none"})

    results = await drive(phase, Handler("sent"), rubbish, odd)

    assert results == ["sent", "sent"]


async def test_other_arguments_at_the_same_place_are_refused(phase: Phase) -> None:
    await drive(phase, Handler("sent"), request(to="a"))

    with pytest.raises(Stopped) as stopped:
        await drive(phase, Handler("sent"), request(to="b"))

    assert isinstance(stopped.value.error, Nondeterminism)
    assert stopped.value.error.facts["changed"] == ["arguments"]


@pytest.mark.parametrize(
    "result", [object(), MagicMock(), {1, 2}, lambda: None], ids=lambda result: type(result).__name__
)
async def test_a_result_that_cannot_be_serialised_is_recorded_as_opaque(phase: Phase, result: Any) -> None:
    live = await drive(phase, Handler(result), request(to="a"))

    handler = Handler(result)
    replayed = await drive(phase, handler, request(to="a"))

    assert live[0] is result
    assert handler.calls == []
    assert isinstance(replayed[0], ToolMessage)
    assert (replayed[0].content, replayed[0].tool_call_id, replayed[0].name) == (OPAQUE_TEXT, "c1", "send")


async def test_arguments_that_cannot_be_serialised_are_no_obstacle(phase: Phase) -> None:
    live = await drive(phase, Handler("sent"), request(to=object()))
    replayed = await drive(phase, Handler("other"), request(to=object()))

    assert live == replayed == ["sent"]


async def test_a_failure_is_recorded_and_raised_again(phase: Phase) -> None:
    with pytest.raises(ValueError, match="no such person"):
        await drive(phase, Handler(ValueError("no such person")), request(to="a"))

    handler = Handler("sent")
    with pytest.raises(ValueError, match="no such person"):
        await drive(phase, handler, request(to="a"))

    assert handler.calls == []


async def test_a_denied_call_is_an_ordinary_result(phase: Phase) -> None:
    handler = Handler("sent")
    live = await drive(phase, handler, request(to="a"), policy=lambda name, args: f"{name} is for others.")
    replayed = await drive(phase, handler, request(to="a"), policy=lambda name, args: None)

    assert handler.calls == []
    assert live == replayed
    assert (live[0].status, live[0].content) == ("error", "Denied: send is for others.")
    assert [event.payload["denied"] for event in phase.events()] == ["send is for others."]


async def test_calls_side_by_side_are_counted_in_the_order_they_were_made(phase: Phase) -> None:
    async def both() -> list[Any]:
        async with open_log(phase.store) as log:
            journal = phase.middleware(log)
            second_is_done = asyncio.Event()

            async def handler(tool_request: Any) -> str:
                if tool_request.tool_call["args"]["to"] == "a":
                    await second_is_done.wait()
                else:
                    second_is_done.set()
                return f"sent to {tool_request.tool_call['args']['to']}"

            calls = (journal.awrap_tool_call(request(to=to), handler) for to in ("a", "b"))
            return list(await asyncio.gather(*calls))

    assert await both() == await both() == ["sent to a", "sent to b"]


async def test_an_unknown_tool_in_flight_at_a_crash_is_a_question_for_a_person(phase: Phase) -> None:
    async with open_log(phase.store) as log:  # what a killed process leaves: the intent
        await log.append(log.event("tool.started", LANE, key=f"{LANE}/x0"))

    with pytest.raises(Suspended):
        await drive(phase, Handler("sent"), request(to="a"))
    await decide(RUN_ID, f"{LANE}/x0", "done", result="it was sent", store=phase.store)
    handler = Handler("sent")
    answered = await drive(phase, handler, request(to="a"))

    assert handler.calls == []
    assert (answered[0].content, answered[0].tool_call_id) == ("it was sent", "c1")


async def test_the_table_of_rules_can_be_extended(phase: Phase) -> None:
    async with open_log(phase.store) as log:
        await log.append(log.event("tool.started", LANE, key=f"{LANE}/x0"))

    results = await drive(phase, Handler("sent"), request(to="a"), rules={"send": ToolRule("rerun")})

    assert results == ["sent"]
