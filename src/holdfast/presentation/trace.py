"""A run's past as people ask of it: attempts and how their time was spent, calls, milestones, money.

Rule: it takes any order a journal can hold, any kind it does not know and any payload, and an event only once.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from holdfast.enums import RunStatus
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.run_fold.calls import CallLog, CallSpan
from holdfast.runtime.run_fold.event_fold import EventFold, EventTable, Lane, find_tree, to_lane, to_text
from holdfast.runtime.run_fold.money import RunMoney
from holdfast.runtime.run_fold.payload_text import error_text
from holdfast.runtime.run_fold.progress import RunProgress
from holdfast.runtime.run_fold.todo_log import TodoLog

_TURN = re.compile(r"/turn\d+$")


class SegmentType(StrEnum):
    """How a piece of time was spent; `down` is time after a crash, until a process took the run over."""

    WORKING = "working"
    WAITING = "waiting"
    QUEUED = "queued"
    DOWN = "down"


class AttemptStatus(StrEnum):
    """How an attempt stands; `changes` is one that a person's answer or a change to the run ended."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CHANGES = "changes"
    ABORTED = "aborted"


class MilestoneType(StrEnum):
    CRASH = "crash"
    STOPPED = "stopped"
    RESUMED = "resumed"
    PAUSED = "paused"
    ABORTED = "aborted"
    RETRIED = "retried"
    UNKNOWN = "unknown"


@dataclass
class Segment:
    """A piece of an attempt's time; open while `until` is `None`."""

    type: SegmentType
    since: float
    until: float | None = None


@dataclass
class AttemptSpan:
    """An attempt at a phase. Its segments follow each other without a gap; while it is open, so is the last one."""

    phase: str
    n: int
    since: float
    seq: int
    until: float | None = None
    state: AttemptStatus = AttemptStatus.RUNNING
    error: str = ""
    segments: list[Segment] = field(default_factory=list)
    needs_answer: bool = False
    """A person has not answered yet."""

    @property
    def segment_type(self) -> SegmentType:
        return self.segments[-1].type

    @property
    def is_working(self) -> bool:
        return self.until is None and self.segment_type is SegmentType.WORKING

    def worked_s(self, now: float) -> float:
        """Return for how long processes have worked on it."""
        working = [each for each in self.segments if each.type is SegmentType.WORKING]
        return sum(max((now if each.until is None else each.until) - each.since, 0.0) for each in working)

    def turn_to(self, kind: SegmentType, ts: float) -> None:
        if self.until is None and self.segment_type is not kind:
            self._close(ts)
            self.segments.append(Segment(kind, ts))

    def finish(self, ts: float, state: AttemptStatus, error: str = "") -> None:
        self._close(ts)
        self.until, self.state, self.error = ts, state, error

    def _close(self, ts: float) -> None:
        last = self.segments[-1]
        if last.until is None:
            last.until = max(last.since, ts)


@dataclass(frozen=True)
class Milestone:
    """A turning point of a run."""

    ts: float
    type: MilestoneType
    text: str


class AttemptLog(EventFold):
    """The attempts of a run and its milestones.

    How the time of an attempt is known, though no event says "now I wait":
    - it works from its start until a person is asked, the run pauses, or it ends;
    - an answer ends the waiting, but a process must come first: until then it is queued. A process that was there all
      the time shows by its next call, another one by `run.resumed`;
    - a crash writes nothing. It is seen afterwards, when a run is resumed that neither waited nor was over, and it
      happened after the event before: from there on the attempt was down.
    """

    def __init__(self, progress: RunProgress) -> None:
        self.by_lane: dict[Lane, AttemptSpan] = {}
        self.milestones: list[Milestone] = []
        self.last_ts: float | None = None
        self._progress = progress
        self._is_after_interruption = False
        self._has_died = False

    def add(self, event: Event) -> None:
        """Take an event, before `progress` does: a resume needs to know what the run did until now."""
        super().add(event)
        self.last_ts = event.ts

    def of_phase(self, phase: str) -> list[AttemptSpan]:
        return sorted((each for each in self.by_lane.values() if each.phase == phase), key=lambda each: each.n)

    def _start(self, event: Event) -> None:
        lane = to_lane(event)
        if lane.phase and lane not in self.by_lane:
            first = Segment(SegmentType.WORKING, event.ts)
            self.by_lane[lane] = AttemptSpan(lane.phase, lane.attempt, event.ts, event.seq, segments=[first])

    def _finish(self, event: Event) -> None:
        if (attempt := self.by_lane.get(to_lane(event))) is not None:
            attempt.finish(event.ts, _ENDS_OF_PHASE[event.kind], error_text(event.payload.get("error")))

    def _reopen(self, event: Event) -> None:
        """End the attempt before the one that is to come; the event may stand in the lane of either."""
        # The event names the attempt that is to come where the engine reopens a phase, and the attempt that is given up
        # where a change to the run does. A finished attempt has its end already.
        phase, n = to_lane(event)
        before = self.by_lane.get(Lane(phase, n - 1)) or self.by_lane.get(Lane(phase, n))
        if before is not None and before.until is None:
            is_by_person = event.payload.get("reason") in ("changes", "run_changed", "files_restored")
            is_change = is_by_person or event.payload.get("comment")
            before.finish(event.ts, AttemptStatus.CHANGES if is_change else AttemptStatus.FAILED, before.error)

    def _request_answer(self, event: Event) -> None:
        if (attempt := self.by_lane.get(to_lane(event))) is not None:
            attempt.needs_answer = True
            attempt.turn_to(SegmentType.WAITING, event.ts)

    def _receive_answer(self, event: Event) -> None:
        if (attempt := self.by_lane.get(to_lane(event))) is not None:
            attempt.needs_answer = False
            # Queued, not working: the answer is only written down, and whoever drives the run has not seen it yet.
            if attempt.segment_type is SegmentType.WAITING:
                attempt.turn_to(SegmentType.QUEUED, event.ts)

    def _note_call(self, event: Event) -> None:
        attempt = self.by_lane.get(to_lane(event))
        if attempt is not None and attempt.segment_type is SegmentType.QUEUED:
            attempt.turn_to(SegmentType.WORKING, event.ts)  # its process was there all the time, and has the answer

    def _note_unknown(self, event: Event) -> None:
        resolution = to_text(event.payload.get("resolution")) or "asked"
        # A turn is no call, a call that a person was waited for in has no outcome either, and a command that went on by
        # itself has one.
        is_turn = _TURN.search(to_text(event.payload.get("key"))) is not None
        if not self._is_after_interruption or resolution == "reattached" or is_turn:
            return
        if not self._has_died and resolution != "ask":  # its process was stopped: that is expected, and no alarm
            return
        self._add_milestone(event.ts, MilestoneType.UNKNOWN, f"Outcome unknown: {resolution}")

    def _pause(self, event: Event) -> None:
        reason = event.payload.get("reason")
        # A pause is of the whole run: attempts that did not ask anything stand still with the one that did.
        for attempt in self.by_lane.values():
            attempt.turn_to(SegmentType.WAITING, event.ts)
        if reason != "approval":
            self._add_milestone(event.ts, MilestoneType.PAUSED, f"Paused: {to_text(reason) or 'waits'}")

    def _request_resume(self, event: Event) -> None:
        if event.payload.get("verb") == "retry":
            by = to_text(event.payload.get("by")) or "someone"
            self._add_milestone(event.ts, MilestoneType.RETRIED, f"Retried by {by}")

    def _resume(self, event: Event) -> None:
        after = event.payload.get("after")
        # A resume of a run that was paused, failed or never started is expected. Of any other the process has ended: it
        # neither paused nor ended it. `after` is the state that the resuming process has found. A process that is
        # stopped gives the run up; one that died has it still, and it is taken over.
        is_interrupted = self._progress.status != RunStatus.PAUSED and after not in (
            RunStatus.PAUSED,
            RunStatus.FAILED,
            RunStatus.PENDING,
        )
        self._is_after_interruption = is_interrupted
        if is_interrupted:
            # When it ended nobody knows; the last event is the last sign of life.
            ended_at = event.ts if self.last_ts is None else self.last_ts
            self._has_died = event.payload.get("taken_over") is True
            kind, verb = (MilestoneType.CRASH, "died") if self._has_died else (MilestoneType.STOPPED, "was stopped")
            self._add_milestone(ended_at, kind, f"The process that drove it {verb} here")
            for attempt in self.by_lane.values():
                attempt.turn_to(SegmentType.DOWN, ended_at)
        for attempt in self.by_lane.values():
            attempt.turn_to(SegmentType.WAITING if attempt.needs_answer else SegmentType.WORKING, event.ts)
        if after != RunStatus.PENDING:  # else it is the first start, not a return
            text = "Resumed: nothing that was done is done again" if is_interrupted else "Resumed"
            self._add_milestone(event.ts, MilestoneType.RESUMED, text)

    def _end(self, event: Event) -> None:
        for attempt in self.by_lane.values():
            if attempt.until is None:
                attempt.finish(event.ts, _ENDS_OF_RUN[event.kind], attempt.error)
        if event.kind == EventKind.RUN_CANCELLED:
            self._add_milestone(event.ts, MilestoneType.ABORTED, "Aborted")

    def _add_milestone(self, ts: float, kind: MilestoneType, text: str) -> None:
        self.milestones.append(Milestone(ts, kind, text))

    TABLE: ClassVar[EventTable] = {
        EventKind.PHASE_STARTED: _start,
        EventKind.PHASE_COMPLETED: _finish,
        EventKind.PHASE_FAILED: _finish,
        EventKind.PHASE_REOPENED: _reopen,
        EventKind.HUMAN_APPROVAL_REQUESTED: _request_answer,
        EventKind.HUMAN_APPROVAL_RECEIVED: _receive_answer,
        EventKind.MODEL_REQUEST: _note_call,
        EventKind.MODEL_RESPONSE: _note_call,
        EventKind.MODEL_ERROR: _note_call,
        EventKind.TOOL_STARTED: _note_call,
        EventKind.TOOL_RESULT: _note_call,
        EventKind.TOOL_ERROR: _note_call,
        EventKind.STEP_STARTED: _note_call,
        EventKind.STEP_COMPLETED: _note_call,
        EventKind.STEP_FAILED: _note_call,
        EventKind.TOOL_UNKNOWN: _note_unknown,
        EventKind.STEP_UNKNOWN: _note_unknown,
        EventKind.RUN_PAUSED: _pause,
        EventKind.RUN_RESUME_REQUESTED: _request_resume,
        EventKind.RUN_RESUMED: _resume,
        EventKind.RUN_COMPLETED: _end,
        EventKind.RUN_FAILED: _end,
        EventKind.RUN_CANCELLED: _end,
    }


_ENDS_OF_PHASE: Mapping[str, AttemptStatus] = {
    EventKind.PHASE_COMPLETED: AttemptStatus.COMPLETED,
    EventKind.PHASE_FAILED: AttemptStatus.FAILED,
}
_ENDS_OF_RUN: Mapping[str, AttemptStatus] = {
    EventKind.RUN_COMPLETED: AttemptStatus.COMPLETED,
    EventKind.RUN_FAILED: AttemptStatus.FAILED,
    EventKind.RUN_CANCELLED: AttemptStatus.ABORTED,
}


class RunTrace:
    """All that people ask of a run's past, kept up to date event by event."""

    def __init__(self, phase_keys: Iterable[str] = ()) -> None:
        self.progress = RunProgress(phase_keys)
        self.attempts = AttemptLog(self.progress)
        self.calls = CallLog()
        self.money = RunMoney(self.calls)
        self.todos = TodoLog()
        self.trees: dict[str, tuple[str, float]] = {}
        """By phase the files that were recorded last in it, and when."""
        self.first_ts: float | None = None
        self.last_seq = 0

    @classmethod
    def of(cls, events: Iterable[Event]) -> "RunTrace":
        trace = cls()
        trace.extend(events)
        return trace

    def extend(self, events: Iterable[Event]) -> None:
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        """Take an event; one that was taken before changes nothing."""
        if event.seq <= self.last_seq:
            return
        self.last_seq = event.seq
        self.first_ts = event.ts if self.first_ts is None else self.first_ts
        if (tree := find_tree(event)) and (phase := to_lane(event).phase):
            self.trees[phase] = (tree, event.ts)
        self.attempts.add(event)
        self.progress.add(event)
        self.calls.add(event)
        self.money.add(event)
        self.todos.add(event)

    @property
    def last_ts(self) -> float | None:
        return self.attempts.last_ts

    @property
    def milestones(self) -> list[Milestone]:
        return self.attempts.milestones

    def find_open_call(self) -> CallSpan | None:
        """Return the call that is under way; none is in a run that is over or waits."""
        return None if self.progress.is_still else self.calls.find_open()

    def attempts_of(self, phase: str) -> list[AttemptSpan]:
        return self.attempts.of_phase(phase)

    def calls_of(self, phase: str, n: int | None = None) -> list[CallSpan]:
        return [call for call in self.calls.by_key.values() if call.phase == phase and n in (None, call.attempt)]

    def find_busy(self) -> list[tuple[float, float | None]]:
        """Find when somebody worked, joined and in order; the last may still be open."""
        found: list[tuple[float, float | None]] = []
        segments = [each for attempt in self.attempts.by_lane.values() for each in attempt.segments]
        working = [each for each in segments if each.type is SegmentType.WORKING]
        for segment in sorted(working, key=lambda each: each.since):
            if found and (found[-1][1] is None or segment.since <= found[-1][1]):
                since, until = found[-1]
                both = None if until is None or segment.until is None else max(until, segment.until)
                found[-1] = (since, both)
            else:
                found.append((segment.since, segment.until))
        return found
