"""What the agent of a conversation gets: all that was said before, in the order it was said.

Imported lazily: it brings the agent framework with it.
"""

from collections.abc import Sequence
from typing import Any

from holdfast.agents.calls.recorded_messages import read_turn, to_person_message
from holdfast.engine.conversation.journal import PHASE, Conversation, TurnRecord
from holdfast.runtime.events import Event
from holdfast.runtime.records import Records

TURN = "turn1"


def to_messages(events: Sequence[Event], conversation: Conversation, turn: TurnRecord) -> list[Any]:
    """Return everything up to and with the messages of a turn; the same at each call."""
    records = Records(event for event in events if event.seq <= turn.until)
    messages: list[Any] = []
    for before in conversation.turns:
        if before.number >= turn.number:
            break
        messages += _said_by_person(conversation, before)
        lane_id = f"{PHASE}/{before.number}/{TURN}"
        messages += read_turn(records, lane_id, lambda seq: conversation.messages[seq].blocks)
        if before.error:
            messages.append(to_person_message(f"[The answer ended here: {before.error.get('message', '')}]"))
    return [*messages, *_said_by_person(conversation, turn)]


def _said_by_person(conversation: Conversation, turn: TurnRecord) -> list[Any]:
    return [to_person_message(conversation.messages[seq].blocks) for seq in turn.messages]
