"""A run as a person watches it: a fold over its events. Pure, so it is right after a replay; time and money: `past`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.cli.terminal.output import plain
from holdfast.presentation.trace import RunTrace, lane_of
from holdfast.runtime.events import Event, EventKind

_TARGETS = ("file_path", "path", "pattern", "command", "description")
_RUN_STATES: dict[str, str] = {
    EventKind.RUN_STARTED: "running",
    EventKind.RUN_RESUMED: "running",
    EventKind.RUN_PAUSED: "paused",
    EventKind.RUN_COMPLETED: "completed",
    EventKind.RUN_FAILED: "failed",
    EventKind.RUN_CANCELLED: "cancelled",
}


@dataclass
class PhaseView:
    """One phase: its state, and what is happening in it."""

    key: str
    state: str = "pending"
    attempt: int = 0
    call: str = ""
    asked: str = ""
    text: str = ""
    note: str = ""
    is_call_asked: bool = False
    """What waits for a person is a call, not the phase's result."""


@dataclass
class RunView:
    """What is known of a run after the events so far; time and money are what the chronicle says."""

    run_id: str
    phases: dict[str, PhaseView] = field(default_factory=dict)
    workflow: str = ""
    state: str = "pending"
    reason: str = ""
    error: str = ""
    budget_micros: int | None = None
    notice: str = ""
    past: RunTrace = field(default_factory=RunTrace)

    @classmethod
    def of(cls, run_id: str, phase_keys: Iterable[str]) -> "RunView":
        return cls(run_id, {key: PhaseView(key) for key in phase_keys})

    @property
    def is_still(self) -> bool:
        """Nothing more happens until a person does something."""
        return self.state not in ("pending", "running")

    @property
    def last_seq(self) -> int:
        return self.past.last_seq

    @property
    def cost_micros(self) -> int:
        return self.past.total.micros + self.past.reserved_micros

    def is_working(self, key: str) -> bool:
        return any(attempt.is_working for attempt in self.past.attempts_of(key))

    def worked_s(self, key: str, now: float) -> float:
        return sum(attempt.worked_s(now) for attempt in self.past.attempts_of(key))

    def apply(self, event: Event) -> None:
        if event.seq <= self.last_seq:
            return
        self.past.add(event)
        payload = event.payload
        if event.kind in _RUN_STATES:
            self._apply_run(event)
        elif event.kind == EventKind.RUN_CREATED:
            self.workflow = str(payload.get("workflow", ""))
            self.budget_micros = payload.get("budget_micros")
        elif event.kind == EventKind.BUDGET_RAISED and self.budget_micros is not None:
            self.budget_micros += int(payload.get("amount_micros") or 0)
        elif (phase := self._phase_of(event)) is not None:
            _apply_phase(phase, event)

    def _apply_run(self, event: Event) -> None:
        self.state = _RUN_STATES[event.kind]
        self.reason = str(event.payload.get("reason", "")) if self.state == "paused" else ""
        self.error = _message(event.payload.get("error"))

    def _phase_of(self, event: Event) -> PhaseView | None:
        key = event.payload.get("phase") or event.lane_id.partition("/")[0]
        if key in self.phases or not event.payload.get("phase"):
            return self.phases.get(key)
        return self.phases.setdefault(key, PhaseView(key))


def _apply_phase(phase: PhaseView, event: Event) -> None:
    payload = event.payload
    if event.kind == EventKind.PHASE_STARTED:
        phase.state, phase.note = "running", ""
        phase.attempt = lane_of(event)[1]
    elif event.kind in (
        EventKind.PHASE_COMPLETED,
        EventKind.PHASE_FAILED,
        EventKind.PHASE_SKIPPED,
        EventKind.PHASE_REOPENED,
    ):
        _end_phase(phase, event)
    elif event.kind == EventKind.HUMAN_APPROVAL_REQUESTED:
        phase.state, phase.call, phase.asked = "awaiting_approval", "", ""
        phase.is_call_asked = payload.get("about") in ("tool", "outcome")
    elif event.kind == EventKind.HUMAN_APPROVAL_RECEIVED:
        if phase.is_call_asked:
            phase.state = "running"  # the phase itself was never done; whoever resumes goes on in it
        phase.note = f"{str(payload.get('action', '')).replace('_', ' ')} by {payload.get('by') or 'someone'}"
    elif event.kind == EventKind.ARTIFACT_REJECTED:
        phase.note = "the artifact was not right; the agent corrects it"
    elif event.kind in (EventKind.TOOL_STARTED, EventKind.TOOL_RESULT) and payload.get("tool"):
        phase.call = describe_call(payload)
    elif event.kind == EventKind.MODEL_REQUEST:
        phase.asked = str(payload.get("model") or "the model")
    elif event.kind == EventKind.MODEL_RESPONSE:
        phase.asked = ""
        phase.text = last_line(message_text(payload.get("result"))) or phase.text


def _end_phase(phase: PhaseView, event: Event) -> None:
    phase.call = phase.asked = ""
    if event.kind == EventKind.PHASE_COMPLETED:
        phase.state, phase.text = "completed", ""
    elif event.kind == EventKind.PHASE_SKIPPED:
        phase.state, phase.note = "completed", "done before, not repeated"
    elif event.kind == EventKind.PHASE_REOPENED:
        phase.state, phase.note = "pending", "another attempt"
    else:
        phase.state, phase.note = "failed", _message(event.payload.get("error"))


def describe_call(payload: Mapping[str, Any]) -> str:
    """A tool call in a few words: its name and what it is about."""
    args, argv = payload.get("args"), payload.get("argv")
    if isinstance(argv, list):
        return plain(" ".join(str(part) for part in argv))
    target = next((args[name] for name in _TARGETS if args.get(name)), "") if isinstance(args, dict) else ""
    return plain(f"{payload.get('tool')} {target}".rstrip())


def message_text(result: Any) -> str:
    """What a model said, out of a journaled response; nothing where it has another form."""
    if isinstance(result, Mapping):
        if isinstance(result.get("$msg"), list) and len(result["$msg"]) == 2:
            return _content_text(result["$msg"][1])
        return next((text for value in result.values() if (text := message_text(value))), "")
    if isinstance(result, list):
        return next((text for value in result if (text := message_text(value))), "")
    return ""


def _content_text(message: Any) -> str:
    content = message.get("content") if isinstance(message, Mapping) else ""
    if isinstance(content, list):
        return "\n".join(str(block.get("text", "")) for block in content if isinstance(block, Mapping))
    return content if isinstance(content, str) else ""


def last_line(text: str) -> str:
    lines = [line.strip() for line in plain(text).splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _message(error: Any) -> str:
    return str(error.get("message", "")) if isinstance(error, dict) else str(error or "")
