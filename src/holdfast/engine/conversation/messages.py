"""What the agent of a conversation gets: all that was said before, and what is said while it works.

Imported lazily: it brings the agent framework with it.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.types import Command

from holdfast.agents.calls.adapters import to_tool_call, unpack
from holdfast.agents.calls.middleware import JournalMiddleware
from holdfast.engine.conversation.journal import PHASE, Conversation, Message, TurnRecord, inbox_key
from holdfast.runtime.durable import RunLog, Step
from holdfast.runtime.events import Event
from holdfast.runtime.records import Records, StepState

TURN = "turn1"
_NOT_DONE = "Not done: the answer was interrupted before this call had a result."


def to_messages(events: Sequence[Event], conversation: Conversation, turn: TurnRecord) -> list[BaseMessage]:
    """Return everything up to and with the messages of a turn; the same at each call."""
    records = Records(event for event in events if event.seq <= turn.until)
    messages: list[BaseMessage] = []
    for before in conversation.turns:
        if before.number >= turn.number:
            break
        messages += _said_by_person(conversation, before)
        messages += _said_by_agent(records, conversation, f"{PHASE}/{before.number}/{TURN}")
        if before.error:
            messages.append(HumanMessage(f"[The answer ended here: {before.error.get('message', '')}]"))
    return [*messages, *_said_by_person(conversation, turn)]


def _said_by_person(conversation: Conversation, turn: TurnRecord) -> list[BaseMessage]:
    return [HumanMessage(conversation.messages[seq].content) for seq in turn.messages]


def _said_by_agent(records: Records, conversation: Conversation, lane_id: str) -> Iterator[BaseMessage]:
    """Yield what happened in one turn, from its recorded steps."""
    number = 0
    while True:
        for seq in _result(records, inbox_key(lane_id, number), {"messages": []})["messages"]:
            yield HumanMessage(conversation.messages[seq].content)
        answer = _result(records, f"{lane_id}/m{number}")
        if answer is None:
            break
        for message in unpack(answer, None).result:
            yield message
            for position, call in enumerate(message.tool_calls if isinstance(message, AIMessage) else ()):
                yield from _tool_messages(_result(records, f"{lane_id}/m{number}.t{position}"), call)
        number += 1
    command = _result(records, f"{lane_id}/x0")  # a persona that is a command: its one call is its answer
    if command is not None:
        answer = unpack(command, to_tool_call({"name": "agent", "id": "agent"}))
        yield AIMessage(content=getattr(answer, "text", "") or str(answer))


def _tool_messages(recorded: Any, call: Any) -> list[BaseMessage]:
    answer = None if recorded is None else unpack(recorded, to_tool_call(call))
    if isinstance(answer, ToolMessage):
        return [answer]
    if isinstance(answer, Command) and isinstance(answer.update, dict):
        return [message for message in answer.update.get("messages", ()) if isinstance(message, ToolMessage)]
    return [ToolMessage(content=_NOT_DONE, name=call["name"], tool_call_id=call["id"], status="error")]


def _result(records: Records, key: str, default: Any = None) -> Any:
    record = records.by_key.get(("step", key))
    return record.result if record is not None and record.state is StepState.COMPLETED else default


class Inbox(AgentMiddleware[Any, Any, Any]):
    """Brings messages to the agent while it works, before its next model call; each of them once, as a durable step.

    Subagents carry it too, and are told nothing: it was said to whoever speaks with the person.
    """

    def __init__(
        self, log: RunLog, journal: JournalMiddleware, read_waiting: Callable[[], Awaitable[list[Message]]]
    ) -> None:
        super().__init__()
        self._log = log
        self._journal = journal
        self._read_waiting = read_waiting
        self._told: dict[int, Message] = {}
        self._number = 0

    async def abefore_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        lane_id = self._journal.lane_id
        if self._journal.current_lane() != lane_id:
            return None
        key, call = inbox_key(lane_id, self._number), f"{lane_id}/m{self._number}"
        self._number += 1
        records = self._log.records.by_key
        if ("step", key) not in records and ("step", call) in records:
            return None  # the call was made before, and nothing was said before it
        waiting = {message.seq: message for message in await self._read_waiting() if message.seq not in self._told}
        if ("step", key) not in records and not waiting:
            return None
        # crash: without this record they wait for the next process; with it, the agent has been told.
        given = await self._log.step(Step(key, lane_id), lambda: {"messages": list(waiting)})
        self._told.update({seq: waiting[seq] for seq in given["messages"]})
        return {"messages": [HumanMessage(waiting[seq].content) for seq in given["messages"]]}

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        return await handler(request)
