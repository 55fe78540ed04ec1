"""A conversation is a run: of one phase that never ends, whose attempts are its turns.

A person's messages are events. Anyone may write one, at any time; whoever drives the run brings it to the agent, before
the next model call of the turn under way or as the next turn, and pauses when all is answered. So a kill, a second
process and a message in the middle of an answer are nothing special here.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.agents.image_blocks import to_content
from holdfast.agents.redaction import scrub_prompt
from holdfast.images import Image, ImageLabel, list_labels, read_labels
from holdfast.persistence.db import Database
from holdfast.persistence.statements import insert_images
from holdfast.persona import AgentPersona
from holdfast.runtime.events import Event, EventKind, create_event
from holdfast.runtime.stores import open_journal
from holdfast.workflow import WorkflowTemplate

NAME = "conversation"
PHASE = "chat"
ROLE = "partner"
_NO_ARTIFACT = "holdfast/conversation"  # no schema has this id, so no workflow file can ask for it
_TURN_S = 4 * 3600.0


@functools.cache
def conversation_template() -> WorkflowTemplate:
    """Return the workflow behind every conversation. Its phase names an artifact as each phase does; none is made."""
    return WorkflowTemplate.model_validate(
        {
            "name": NAME,
            "version": 1,
            "description": "A conversation with a persona about a repository.",
            "roles": [{"id": ROLE, "required_capabilities": []}],
            "phases": [
                {
                    "key": PHASE,
                    "title": "Conversation",
                    "risk": "low",
                    "role": ROLE,
                    "instructions": "Answer what you are asked.",
                    "timeout_seconds": _TURN_S,
                    "expected_artifact": {"path": ".holdfast/results/conversation.json", "schema": _NO_ARTIFACT},
                }
            ],
        }
    )


def is_conversation(template: WorkflowTemplate) -> bool:
    return template.name == NAME and [p.expected_artifact.schema_id for p in template.phases] == [_NO_ARTIFACT]


@dataclass(frozen=True)
class Message:
    """What a person said. `content` is what the agent is told: the text, and the files that it mentions."""

    seq: int
    text: str
    content: str
    persona: AgentPersona | None = None
    """Who answers from here on, where that has changed."""
    images: tuple[ImageLabel, ...] = ()

    @property
    def blocks(self) -> str | list[Any]:
        """The content as a model is asked with it."""
        return to_content(self.content, self.images)


@dataclass
class TurnRecord:
    """One message or more, and what the agent did about them. `error` says why it ended without an answer."""

    number: int
    messages: list[int]
    until: int
    """The history that the agent got for this turn ends with the event of this number."""
    is_over: bool = False
    error: Mapping[str, Any] | None = None


@dataclass
class Conversation:
    """A conversation as its journal has it: pure, a fold over events."""

    messages: dict[int, Message] = field(default_factory=dict)
    turns: list[TurnRecord] = field(default_factory=list)
    delivered: set[int] = field(default_factory=set)
    last_seq: int = 0

    @classmethod
    def of(cls, events: Iterable[Event]) -> "Conversation":
        conversation = cls()
        for event in events:
            conversation.add(event)
        return conversation

    def add(self, event: Event) -> None:
        payload = event.payload
        self.last_seq = max(self.last_seq, event.seq)
        if event.kind == EventKind.MESSAGE_RECEIVED:
            self.messages[event.seq] = to_message(event)
        elif event.kind == EventKind.PHASE_STARTED and payload.get("phase") == PHASE:
            pinned = payload["result"]
            self.delivered.update(pinned["messages"])
            self.turns.append(TurnRecord(int(payload["attempt_no"]), list(pinned["messages"]), int(pinned["until"])))
        elif event.kind == EventKind.PHASE_COMPLETED and payload.get("phase") == PHASE and self.turns:
            self.turns[-1].is_over, self.turns[-1].error = True, payload.get("error")
        elif event.kind == EventKind.STEP_COMPLETED and is_inbox(str(payload.get("key", ""))):
            self.delivered.update(payload["result"]["messages"])

    @property
    def waiting(self) -> list[Message]:
        """Messages that no agent was told yet."""
        return [message for seq, message in self.messages.items() if seq not in self.delivered]

    def persona_at(self, seqs: Iterable[int], bound: AgentPersona) -> AgentPersona:
        """Return who answers these messages: the one that was named last, up to them."""
        last = max(seqs, default=0)
        named = [message.persona for seq, message in self.messages.items() if seq <= last and message.persona]
        return named[-1] if named else bound


def to_message(event: Event) -> Message:
    payload = event.payload
    persona = payload.get("persona")
    return Message(
        event.seq,
        str(payload.get("text", "")),
        str(payload.get("content") or payload.get("text", "")),
        AgentPersona.model_validate(persona) if isinstance(persona, dict) else None,
        read_labels(payload.get("images")),
    )


def is_inbox(key: str) -> bool:
    return key.startswith(f"{PHASE}/") and key.rpartition("/")[2].startswith("inbox")


def message_event(
    run_id: str,
    text: str,
    *,
    content: str = "",
    persona: AgentPersona | None = None,
    by: str = "",
    images: Sequence[Image] = (),
) -> Event:
    """Make the event of a person's message; with `persona`, who answers from here on.

    The rows of its images are the caller's to write beside it.
    """
    payload: dict[str, Any] = {"text": scrub_prompt(text), "by": by}
    if content and content != text:
        payload["content"] = scrub_prompt(content)
    if persona is not None:
        payload["persona"] = persona.model_dump(by_alias=True)
    if images:
        payload["images"] = list_labels(images)
    return create_event(run_id, EventKind.MESSAGE_RECEIVED, **payload)


def to_phase_message(message: Event, phase: str) -> Event:
    """Return the event of a message as one to the agent of a running phase."""
    return replace(message, payload={**message.payload, "phase": phase})


async def send_message(db: Database, run_id: str, text: str, *, images: Sequence[Image] = (), **options: Any) -> int:
    """Write down what a person says, and return its number; options as for `message_event`.

    On return it survives whatever happens to this process. Nobody is woken: resume the run, unless someone drives it.
    """
    message = message_event(run_id, text, images=images, **options)
    async with open_journal(db.store) as journal:
        (stored,) = await journal.append(run_id, [message], rows=insert_images(run_id, images))
    return stored.seq


async def read_conversation(db: Database, run_id: str) -> Conversation:
    async with open_journal(db.store) as journal:
        return Conversation.of(await journal.read(run_id))
