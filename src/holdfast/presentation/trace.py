"""A run's events folded into what people ask of its past: attempts and their times, calls, turning points, money.

Rule: it takes any order a journal can hold, any kind it does not know and any payload, and an event only once.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from holdfast.engine.history import find_tree
from holdfast.presentation.format import brief, error_text
from holdfast.runtime.events import Event, EventKind

_STARTS = (EventKind.MODEL_REQUEST, EventKind.TOOL_STARTED, EventKind.STEP_STARTED)
_ENDS: dict[str, str] = {
    EventKind.MODEL_RESPONSE: "done",
    EventKind.MODEL_ERROR: "failed",
    EventKind.TOOL_RESULT: "done",
    EventKind.TOOL_ERROR: "failed",
    EventKind.STEP_COMPLETED: "done",
    EventKind.STEP_FAILED: "failed",
}


@dataclass
class Segment:
    """A piece of an attempt's time: `working`, `waiting`, `queued` or `down`; open while `until` is `None`."""

    type: str
    since: float
    until: float | None = None


@dataclass
class AttemptSpan:
    phase: str
    n: int
    since: float
    seq: int
    until: float | None = None
    state: str = "running"
    error: str = ""
    segments: list[Segment] = field(default_factory=list)
    is_asked: bool = False
    """A person has not answered yet."""

    @property
    def is_working(self) -> bool:
        return self.until is None and self.segments[-1].type == "working"

    def worked_s(self, now: float) -> float:
        """How long processes have worked on it."""
        working = [each for each in self.segments if each.type == "working"]
        return sum(max((now if each.until is None else each.until) - each.since, 0.0) for each in working)

    def turn_to(self, kind: str, ts: float) -> None:
        if self.until is None and self.segments[-1].type != kind:
            self._close(ts)
            self.segments.append(Segment(kind, ts))

    def finish(self, ts: float, state: str, error: str = "") -> None:
        self._close(ts)
        self.until, self.state, self.error = ts, state, error

    def _close(self, ts: float) -> None:
        last = self.segments[-1]
        if last.until is None:
            last.until = max(last.since, ts)


@dataclass
class CallSpan:
    """A model or tool call, from its request to its answer; `open`, `done`, `failed` or `cut` off by the run's end."""

    key: str
    type: str
    label: str
    brief: str
    phase: str
    attempt: int
    since: float
    start_seq: int
    model: str = ""
    until: float | None = None
    state: str = "open"
    tries: int = 1
    error: str = ""
    end_seq: int | None = None
    micros: int = 0
    is_unknown: bool = False


@dataclass(frozen=True)
class Milestone:
    """A turning point: `crash`, `resumed`, `paused`, `aborted`, `retried` or `unknown`."""

    ts: float
    type: str
    text: str


@dataclass
class UsageTotal:
    """Money and tokens of some calls."""

    micros: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def add(self, other: "UsageTotal") -> None:
        self.micros += other.micros
        self.calls += other.calls
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens


class RunTrace:
    def __init__(self) -> None:
        self.attempts: dict[tuple[str, int], AttemptSpan] = {}
        self.steps: dict[str, CallSpan] = {}
        self.marks: list[Milestone] = []
        self.total = UsageTotal()
        self.by_phase: dict[str, UsageTotal] = defaultdict(UsageTotal)
        self.by_model: dict[str, UsageTotal] = defaultdict(UsageTotal)
        self.first_ts: float | None = None
        self.last_ts: float | None = None
        self.last_seq = 0
        self.exhausted = ""
        self.is_simulated = False  # whether some of its money is made up
        self.stalled = ""
        self.paused_by = ""
        self.cancelled = ("", "")
        """By whom, and why."""
        self.trees: dict[str, tuple[str, float]] = {}
        """By phase the files that were recorded last in it, and when."""
        self._reserved: dict[str, tuple[str, int]] = {}
        self._is_paused = False
        self._is_over = False

    @classmethod
    def of(cls, events: Iterable[Event]) -> "RunTrace":
        made = cls()
        made.extend(events)
        return made

    def extend(self, events: Iterable[Event]) -> None:
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        if event.seq <= self.last_seq:
            return
        before = self.last_ts if self.last_ts is not None else event.ts
        self.first_ts = event.ts if self.first_ts is None else self.first_ts
        self.last_seq, self.last_ts = event.seq, event.ts
        if (tree := find_tree(event)) and (phase := lane_of(event)[0]):
            self.trees[phase] = (tree, event.ts)
        if event.kind in _STARTS or event.kind in _ENDS:
            self._take_step(event)
        elif event.kind == EventKind.RUN_RESUMED:
            self._resume(event, before)
        elif event.kind.startswith(("run.", "agent.")):
            self._take_run(event)
        elif event.kind.startswith("budget."):
            self._take_money(event)
        elif event.kind in (EventKind.TOOL_UNKNOWN, EventKind.STEP_UNKNOWN):
            self._take_unknown(event)
        else:
            self._take_phase(event)

    @property
    def reserved_micros(self) -> int:
        """For calls without an answer: under way, or cut off by a crash and perhaps paid."""
        return sum(micros for _phase, micros in self._reserved.values())

    def cost_micros(self, phase: str) -> int:
        """What a phase has spent or reserved."""
        spent = self.by_phase[phase].micros if phase in self.by_phase else 0
        return spent + sum(micros for of_phase, micros in self._reserved.values() if of_phase == phase)

    @property
    def is_still(self) -> bool:
        """Whether the run is over or waits: then nothing of it is under way."""
        return self._is_over or self._is_paused

    def find_open_step(self) -> CallSpan | None:
        """The call that is under way: the latest that has begun and not ended."""
        if self.is_still:
            return None
        return next((step for step in reversed(self.steps.values()) if step.state == "open"), None)

    def attempts_of(self, phase: str) -> list[AttemptSpan]:
        return sorted((each for each in self.attempts.values() if each.phase == phase), key=lambda each: each.n)

    def steps_of(self, phase: str, n: int | None = None) -> list[CallSpan]:
        return [step for step in self.steps.values() if step.phase == phase and n in (None, step.attempt)]

    def find_busy(self) -> list[tuple[float, float | None]]:
        """When somebody worked, joined and in order; the last may still be open."""
        found: list[tuple[float, float | None]] = []
        segments = [each for attempt in self.attempts.values() for each in attempt.segments if each.type == "working"]
        for segment in sorted(segments, key=lambda each: each.since):
            if found and (found[-1][1] is None or segment.since <= found[-1][1]):
                since, until = found[-1]
                both = None if until is None or segment.until is None else max(until, segment.until)
                found[-1] = (since, both)
            else:
                found.append((segment.since, segment.until))
        return found

    def _take_run(self, event: Event) -> None:
        payload = event.payload
        match event.kind:
            case EventKind.RUN_PAUSED:
                self._is_paused = True
                self._turn_all("waiting", event.ts)
                if payload.get("reason") != "approval":
                    self._mark(event.ts, "paused", f"Paused: {_text(payload.get('reason')) or 'waits'}")
            case EventKind.RUN_CANCELLED:
                self.cancelled = (_text(payload.get("by")), _text(payload.get("reason")))
                self._end(event.ts, "aborted")
                self._mark(event.ts, "aborted", "Aborted")
            case EventKind.RUN_COMPLETED | EventKind.RUN_FAILED:
                self._end(event.ts, event.kind.partition(".")[2])
            case EventKind.RUN_RESUME_REQUESTED if payload.get("verb") == "retry":
                self._mark(event.ts, "retried", f"Retried by {_text(payload.get('by')) or 'someone'}")
            case EventKind.RUN_PAUSE_REQUESTED:
                self.paused_by = _text(payload.get("by"))
            case EventKind.AGENT_PROGRESS:
                self.stalled = _text(payload.get("stalled")) or self.stalled

    def _resume(self, event: Event, before: float) -> None:
        after = event.payload.get("after")
        is_crash = not self._is_paused and after not in ("paused", "failed", "pending")
        if is_crash:
            self._mark(before, "crash", "The process that drove it ended here")
            self._turn_all("down", before)
        self._is_paused = self._is_over = False
        self.exhausted = self.stalled = ""
        for attempt in self.attempts.values():
            attempt.turn_to("waiting" if attempt.is_asked else "working", event.ts)
        if after != "pending":  # else it is the first start, not a return
            told = "Resumed: nothing that was done is done again" if is_crash else "Resumed"
            self._mark(event.ts, "resumed", told)

    def _end(self, ts: float, state: str) -> None:
        self._is_over = True
        for attempt in self.attempts.values():
            if attempt.until is None:
                attempt.finish(ts, state, attempt.error)
        for step in self.steps.values():
            if step.state == "open":
                step.state, step.until = "cut", ts

    def _turn_all(self, kind: str, ts: float) -> None:
        for attempt in self.attempts.values():
            attempt.turn_to(kind, ts)

    def _mark(self, ts: float, kind: str, text: str) -> None:
        self.marks.append(Milestone(ts, kind, text))

    def _take_phase(self, event: Event) -> None:
        phase, n = lane_of(event)
        attempt = self.attempts.get((phase, n))
        if event.kind == EventKind.PHASE_STARTED and phase and attempt is None:
            made = AttemptSpan(phase, n, event.ts, event.seq, segments=[Segment("working", event.ts)])
            self.attempts[phase, n] = made
        elif event.kind == EventKind.PHASE_REOPENED:
            before = self.attempts.get((phase, n - 1)) or attempt
            is_asked = event.payload.get("reason") in ("changes", "run_changed") or event.payload.get("comment")
            if before is not None and before.until is None:
                before.finish(event.ts, "changes" if is_asked else "failed", before.error)
        elif attempt is None:
            return
        elif event.kind in (EventKind.PHASE_COMPLETED, EventKind.PHASE_FAILED):
            attempt.finish(event.ts, event.kind.partition(".")[2], error_text(event.payload.get("error")))
        elif event.kind == EventKind.HUMAN_APPROVAL_REQUESTED:
            attempt.is_asked = True
            attempt.turn_to("waiting", event.ts)
        elif event.kind == EventKind.HUMAN_APPROVAL_RECEIVED:
            attempt.is_asked = False
            if attempt.segments[-1].type == "waiting":
                attempt.turn_to("queued", event.ts)

    def _take_step(self, event: Event) -> None:
        attempt = self.attempts.get(lane_of(event))
        if attempt is not None and attempt.segments[-1].type == "queued":
            attempt.turn_to("working", event.ts)  # its process was there all the time, and has the answer
        if event.kind in _STARTS:
            self._start_step(event)
        else:
            self._end_step(event)

    def _start_step(self, event: Event) -> None:
        key = event.payload.get("key")
        if not isinstance(key, str):
            return
        if (known := self.steps.get(key)) is not None:
            known.state, known.until, known.tries = "open", None, known.tries + 1
        else:
            self._new_step(event, key, event.ts)

    def _new_step(self, event: Event, key: str, since: float) -> CallSpan:
        phase, n = lane_of(event)
        kind = event.kind.partition(".")[0]
        model = _text(event.payload.get("model"))
        label = (model or "model") if kind == "model" else _text(event.payload.get("tool")) or key
        told = brief(event.payload.get("args"))
        self.steps[key] = made = CallSpan(key, kind, label, told, phase, n, since, event.seq, model)
        return made

    def _end_step(self, event: Event) -> None:
        key, result = event.payload.get("key"), event.payload.get("result")
        if not isinstance(key, str):
            return
        took = _number(result.get("took_s")) if isinstance(result, dict) else 0
        step = self.steps.get(key) or self._new_step(event, key, event.ts - took)
        step.state = "open" if "retry_at" in event.payload else _ENDS[event.kind]
        step.until, step.end_seq = event.ts, event.seq
        step.error = error_text(event.payload.get("error"))
        step.brief = brief(event.payload.get("args")) or step.brief

    def _take_unknown(self, event: Event) -> None:
        if (step := self.steps.get(_text(event.payload.get("key")))) is not None:
            step.is_unknown = True
        told = _text(event.payload.get("resolution")) or "asked"
        self._mark(event.ts, "unknown", f"Outcome unknown: {told}")

    def _take_money(self, event: Event) -> None:
        payload = event.payload
        entry, micros = _text(payload.get("entry")), round(_number(payload.get("amount_micros")))
        if event.kind == EventKind.BUDGET_EXHAUSTED:
            self.exhausted = _text(payload.get("message"))
        elif event.kind == EventKind.BUDGET_RESERVED:
            self.is_simulated = self.is_simulated or payload.get("simulated") is True
            self._reserved[entry] = (lane_of(event)[0] or "run", micros)
        elif event.kind == EventKind.BUDGET_SETTLED:
            self._reserved.pop(entry, None)
            tokens = [round(_number(payload.get(name))) for name in ("input_tokens", "output_tokens")]
            spent = UsageTotal(micros, 1, *tokens)
            step = self.steps.get(_text(payload.get("step")))
            if step is not None:
                step.micros += micros
            model = step.model if step is not None else ""
            for each in (
                self.total,
                self.by_phase[lane_of(event)[0] or "run"],
                self.by_model[model or "unknown model"],
            ):
                each.add(spent)


def lane_of(event: Event) -> tuple[str, int]:
    """Phase and attempt from a lane such as `plan/2/turn1`, or from what the payload says."""
    phase, _, rest = str(event.lane_id or "").partition("/")
    number = rest.partition("/")[0]
    if number.isdigit():
        return phase, int(number)
    told = event.payload.get("attempt_no", event.payload.get("attempt"))
    return _text(event.payload.get("phase")), round(_number(told)) or 1


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0
