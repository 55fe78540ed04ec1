"""What people say to a phase while its agent works: an event, brought to the agent before its next model call.

Rule: each message reaches one turn of its phase, once, as a recorded step. What comes too late for an attempt waits for
the next one.
"""

from collections.abc import Sequence
from typing import Any

from holdfast.engine.conversation.journal import Message, to_message
from holdfast.engine.phase.agent_turn import More
from holdfast.engine.scope import RunScope
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.records import StepState
from holdfast.workflow import Phase


class PhaseMessages:
    """The messages to one turn of a phase, read from the journal as they come."""

    def __init__(self, scope: RunScope, phase: Phase, lane_id: str) -> None:
        self._scope = scope
        self._phase = phase
        self._lane_id = lane_id
        self._messages: dict[int, Message] = {}
        self._last_seq = 0

    async def read_waiting(self) -> list[Message]:
        """Return what was said to the phase and no other turn has got, with what this turn has got already."""
        for event in await self._scope.read_events(self._last_seq):
            self._last_seq = event.seq
            if is_message_to(event, self._phase.key):
                self._messages[event.seq] = to_message(event)
        elsewhere = self._find_delivered_elsewhere()
        return [message for seq, message in self._messages.items() if seq not in elsewhere]

    def _find_delivered_elsewhere(self) -> set[int]:
        found: set[int] = set()
        for (_type, key), record in self._scope.log.records.by_key.items():
            lane_id, _, name = key.rpartition("/")
            is_delivery = name.startswith("inbox") and key.startswith(f"{self._phase.key}/")
            if is_delivery and lane_id != self._lane_id and record.state is StepState.COMPLETED:
                found.update(record.result["messages"])
        return found


def is_message_to(event: Event, phase_key: str) -> bool:
    return event.kind == EventKind.MESSAGE_RECEIVED and event.payload.get("phase") == phase_key


def with_messages(scope: RunScope, phase: Phase, lane_id: str, more: More | None) -> More:
    """Return the middleware of a turn with the one that brings messages to its agent."""

    def make(journal: Any) -> Sequence[Any]:
        from holdfast.agents.calls.inbox import InboxMiddleware

        reader = PhaseMessages(scope, phase, lane_id)
        return [InboxMiddleware(scope.log, journal, reader.read_waiting), *(more(journal) if more else ())]

    return make
