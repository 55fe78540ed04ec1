"""What was said in an earlier turn, as messages for the next one: read from the recorded steps, no model is asked."""

from collections.abc import Callable, Iterator
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.types import Command

from holdfast.agents.calls.conversion import to_tool_call, unpack
from holdfast.agents.calls.lane_keys import inbox_key, model_key, tool_key
from holdfast.runtime.records import Records, StepState

_NOT_DONE = "Not done: the answer was interrupted before this call had a result."


def to_person_message(content: str | list[Any]) -> BaseMessage:
    """Return a text, with images or without, as a message of the person to the agent."""
    return HumanMessage(content)


def read_turn(records: Records, lane_id: str, find_content: Callable[[int], str | list[Any]]) -> Iterator[BaseMessage]:
    """Yield the messages of one turn: the model's answers, the tools' results, and what the person said meanwhile.

    `find_content` returns the content of the person's message with this number.
    """
    number = 0
    while True:
        for seq in _find_result(records, inbox_key(lane_id, number), {"messages": []})["messages"]:
            yield HumanMessage(find_content(seq))
        answer_key = model_key(lane_id, number)
        answer = _find_result(records, answer_key)
        if answer is None:
            break
        for message in unpack(answer, None).result:
            yield message
            for position, call in enumerate(message.tool_calls if isinstance(message, AIMessage) else ()):
                yield from _tool_messages(_find_result(records, tool_key(answer_key, position)), call)
        number += 1
    command = _find_result(records, f"{lane_id}/x0")  # a persona that is a command: its one call is its answer
    if command is not None:
        answer = unpack(command, to_tool_call({"name": "agent", "id": "agent"}))
        yield AIMessage(content=getattr(answer, "text", "") or str(answer))


def _tool_messages(recorded: Any, call: Any) -> list[BaseMessage]:
    answer = None if recorded is None else unpack(recorded, to_tool_call(call))
    if isinstance(answer, ToolMessage):
        return [answer]
    if isinstance(answer, Command) and isinstance(answer.update, dict):
        return [message for message in answer.update.get("messages", ()) if isinstance(message, ToolMessage)]
    # A provider refuses a history in which a call has no result.
    return [ToolMessage(content=_NOT_DONE, name=call["name"], tool_call_id=call["id"], status="error")]


def _find_result(records: Records, key: str, default: Any = None) -> Any:
    record = records.by_key.get(("step", key))
    return record.result if record is not None and record.state is StepState.COMPLETED else default
