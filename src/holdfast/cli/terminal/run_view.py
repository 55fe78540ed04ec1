"""A run as a person watches it: its trace, and a few words for each phase. Pure, so it is right after a replay."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.cli.terminal.output import plain
from holdfast.presentation.trace import RunTrace
from holdfast.runtime.event_text import content_text, iter_messages
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.run_fold.call_line import describe_call
from holdfast.runtime.run_fold.progress import PhaseProgress


@dataclass
class PhaseView:
    """One phase: where it stands, and in words what is happening in it."""

    progress: PhaseProgress
    call: str = ""
    model: str = ""
    """The model that is asked."""
    text: str = ""
    note: str = ""

    @property
    def key(self) -> str:
        return self.progress.key

    @property
    def state(self) -> str:
        return self.progress.state

    @property
    def attempt(self) -> int:
        return self.progress.attempt

    def apply(self, event: Event) -> None:
        """Take an event of this phase, after `progress` has taken it."""
        take = _WORDS.get(event.kind)
        if take is not None:
            take(self, event)

    def _start(self, event: Event) -> None:
        result = event.payload.get("result")
        ref = result.get("rescue_ref") if isinstance(result, dict) else None
        self.note = f"what lay in the worktree is kept under {ref}" if ref else ""

    def _complete(self, _event: Event) -> None:
        self.call = self.model = self.text = ""

    def _skip(self, _event: Event) -> None:
        self._stop("done before, not repeated")

    def _reopen(self, _event: Event) -> None:
        self._stop("another attempt")

    def _fail(self, event: Event) -> None:
        self._stop(_message(event.payload.get("error")))

    def _stop(self, note: str) -> None:
        self.call, self.model, self.note = "", "", note

    def _request_answer(self, _event: Event) -> None:
        self.call = self.model = ""

    def _receive_answer(self, event: Event) -> None:
        action = str(event.payload.get("action", "")).replace("_", " ")
        self.note = f"{action} by {event.payload.get('by') or 'someone'}"

    def _reject_artifact(self, _event: Event) -> None:
        self.note = "the artifact was not right; the agent corrects it"

    def _call_tool(self, event: Event) -> None:
        if event.payload.get("tool"):
            self.call = describe_call(event.payload)

    def _ask_model(self, event: Event) -> None:
        self.model = str(event.payload.get("model") or "the model")

    def _hear_model(self, event: Event) -> None:
        self.model = ""
        self.text = last_line(message_text(event.payload.get("result"))) or self.text


_WORDS: Mapping[str, Callable[[PhaseView, Event], None]] = {
    EventKind.PHASE_STARTED: PhaseView._start,
    EventKind.PHASE_COMPLETED: PhaseView._complete,
    EventKind.PHASE_SKIPPED: PhaseView._skip,
    EventKind.PHASE_REOPENED: PhaseView._reopen,
    EventKind.PHASE_FAILED: PhaseView._fail,
    EventKind.HUMAN_APPROVAL_REQUESTED: PhaseView._request_answer,
    EventKind.HUMAN_APPROVAL_RECEIVED: PhaseView._receive_answer,
    EventKind.ARTIFACT_REJECTED: PhaseView._reject_artifact,
    EventKind.TOOL_STARTED: PhaseView._call_tool,
    EventKind.TOOL_RESULT: PhaseView._call_tool,
    EventKind.MODEL_REQUEST: PhaseView._ask_model,
    EventKind.MODEL_RESPONSE: PhaseView._hear_model,
}


@dataclass
class RunView:
    """What is known of a run after the events so far; state, time and money are what its trace says."""

    run_id: str
    trace: RunTrace = field(default_factory=RunTrace)
    phases: dict[str, PhaseView] = field(default_factory=dict)
    notice: str = ""

    @classmethod
    def of(cls, run_id: str, phase_keys: Iterable[str]) -> "RunView":
        trace = RunTrace(phase_keys)
        return cls(run_id, trace, {key: PhaseView(phase) for key, phase in trace.progress.phases.items()})

    @property
    def workflow(self) -> str:
        return self.trace.progress.workflow

    @property
    def state(self) -> str:
        return self.trace.progress.status

    @property
    def reason(self) -> str:
        return self.trace.progress.pause_reason

    @property
    def is_still(self) -> bool:
        """Nothing more happens until a person does something."""
        return self.trace.progress.is_still

    @property
    def last_seq(self) -> int:
        return self.trace.last_seq

    def is_working(self, key: str) -> bool:
        return any(attempt.is_working for attempt in self.trace.attempts_of(key))

    def worked_s(self, key: str, now: float) -> float:
        return sum(attempt.worked_s(now) for attempt in self.trace.attempts_of(key))

    def apply(self, event: Event) -> None:
        if event.seq <= self.last_seq:
            return
        self.trace.add(event)
        if event.kind in _WORDS and (phase := self.trace.progress.find_phase(event)) is not None:
            self.phases.setdefault(phase.key, PhaseView(phase)).apply(event)


def message_text(result: Any) -> str:
    """Return what a model said, out of a journaled response; nothing where it has another form."""
    return next((text for message in iter_messages(result) if (text := content_text(message))), "")


def last_line(text: str) -> str:
    lines = [line.strip() for line in plain(text).splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _message(error: Any) -> str:
    return plain(str(error.get("message", "")) if isinstance(error, dict) else str(error or ""))
