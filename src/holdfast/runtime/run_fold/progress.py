"""Where a run and its phases stand, and why, after the events so far."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from holdfast.enums import RunPhaseState, RunStatus
from holdfast.images import read_labels
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.run_fold.event_fold import EventFold, EventTable, to_lane, to_text
from holdfast.runtime.state import status_after


@dataclass
class PhaseProgress:
    """Where a phase stands after the events so far."""

    key: str
    state: RunPhaseState = RunPhaseState.PENDING
    attempt: int = 0
    is_call_pending: bool = False
    """What waits for a person is a call, not the phase's result."""


class RunProgress(EventFold):
    """Where a run and its phases stand, and why."""

    def __init__(self, phase_keys: Iterable[str] = ()) -> None:
        self.phases = {key: PhaseProgress(key) for key in phase_keys}
        self.status: RunStatus | str = RunStatus.PENDING
        self.workflow = ""
        self.images: tuple[str, ...] = ()
        """What goes with the requirements, in words."""
        self.pause_reason = ""
        self.error: Any = None
        self.stalled = ""
        self.paused_by = ""
        self.cancelled = ("", "")
        """By whom, and why."""
        self.sandbox = ""
        """Which sandbox was in force for commands when a process last took the run up."""
        self.unsandboxed_by: str | None = None
        """Who chose that there is none, if someone did."""

    @property
    def is_still(self) -> bool:
        """Whether the run is over or waits: then nothing of it is under way."""
        return self.status not in (RunStatus.PENDING, RunStatus.RUNNING)

    def find_phase(self, event: Event) -> PhaseProgress | None:
        """Return the phase of an event, made now if the payload names a new one; `None` if it is of the whole run."""
        name = to_text(event.payload.get("phase"))
        key = name or event.lane_id.partition("/")[0]
        return self.phases.setdefault(key, PhaseProgress(key)) if name else self.phases.get(key)

    def _create(self, event: Event) -> None:
        self.workflow = str(event.payload.get("workflow", ""))
        self._add_images(event)

    def _add_images(self, event: Event) -> None:
        labels = map(str, read_labels(event.payload.get("images")))
        self.images = tuple(dict.fromkeys([*self.images, *labels]))

    def _move(self, event: Event) -> None:
        payload = event.payload
        self.status = status_after(self.status, event.kind)
        self.pause_reason = str(payload.get("reason", "")) if event.kind == EventKind.RUN_PAUSED else ""
        self.error = payload.get("error")
        if event.kind in (EventKind.RUN_STARTED, EventKind.RUN_RESUMED) and "sandbox" in payload:
            by = payload.get("unsandboxed_by")
            self.sandbox, self.unsandboxed_by = to_text(payload["sandbox"]), by if isinstance(by, str) else None
        if event.kind == EventKind.RUN_RESUMED:
            self.stalled = ""
        elif event.kind == EventKind.RUN_CANCELLED:
            self.cancelled = (to_text(payload.get("by")), to_text(payload.get("reason")))

    def _request_pause(self, event: Event) -> None:
        self.paused_by = to_text(event.payload.get("by"))

    def _stall(self, event: Event) -> None:
        self.stalled = to_text(event.payload.get("stalled")) or self.stalled

    def _move_phase(self, event: Event) -> None:
        if (phase := self.find_phase(event)) is not None:
            phase.state = _PHASE_STATES[event.kind]
            if event.kind == EventKind.PHASE_STARTED:
                phase.attempt = to_lane(event).attempt
            elif event.kind == EventKind.HUMAN_APPROVAL_REQUESTED:
                phase.is_call_pending = event.payload.get("about") in ("tool", "outcome")

    def _answer(self, event: Event) -> None:
        phase = self.find_phase(event)
        if phase is not None and phase.is_call_pending:
            phase.state = RunPhaseState.RUNNING  # the phase itself was never done; whoever resumes goes on in it

    TABLE: ClassVar[EventTable] = {
        EventKind.RUN_CREATED: _create,
        EventKind.RUN_CHANGED: _add_images,
        EventKind.RUN_STARTED: _move,
        EventKind.RUN_RESUMED: _move,
        EventKind.RUN_PAUSED: _move,
        EventKind.RUN_COMPLETED: _move,
        EventKind.RUN_FAILED: _move,
        EventKind.RUN_CANCELLED: _move,
        EventKind.RUN_PAUSE_REQUESTED: _request_pause,
        EventKind.AGENT_PROGRESS: _stall,
        EventKind.PHASE_STARTED: _move_phase,
        EventKind.PHASE_COMPLETED: _move_phase,
        EventKind.PHASE_SKIPPED: _move_phase,
        EventKind.PHASE_FAILED: _move_phase,
        EventKind.PHASE_REOPENED: _move_phase,
        EventKind.HUMAN_APPROVAL_REQUESTED: _move_phase,
        EventKind.HUMAN_APPROVAL_RECEIVED: _answer,
    }


_PHASE_STATES: Mapping[str, RunPhaseState] = {
    EventKind.PHASE_STARTED: RunPhaseState.RUNNING,
    EventKind.PHASE_COMPLETED: RunPhaseState.COMPLETED,
    EventKind.PHASE_SKIPPED: RunPhaseState.COMPLETED,
    EventKind.PHASE_FAILED: RunPhaseState.FAILED,
    EventKind.PHASE_REOPENED: RunPhaseState.PENDING,
    EventKind.HUMAN_APPROVAL_REQUESTED: RunPhaseState.AWAITING_APPROVAL,
}
