"""`/metrics` in the text format of Prometheus. By hand: the format is a few lines, and a library would own the process.

Rule: a label's value never comes from a request; routes are named by their pattern.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.persistence.db import Database
from holdfast.persistence.listings import read_phase_times
from holdfast.runtime.checkpoint.base import Append, AppendResult
from holdfast.runtime.events import EventKind
from holdfast.runtime.journal import Journal

Labels = tuple[tuple[str, str], ...]
BUCKETS_S = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0, 300.0, 1800.0)
BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass
class Histogram:
    """Counts by upper bound, for one set of labels each."""

    name: str
    help: str
    buckets: tuple[float, ...] = BUCKETS_S
    counts: dict[Labels, list[int]] = field(default_factory=dict)
    sums: dict[Labels, float] = field(default_factory=lambda: defaultdict(float))

    def observe(self, value: float, **labels: str) -> None:
        key = tuple(sorted(labels.items()))
        counts = self.counts.setdefault(key, [0] * (len(self.buckets) + 1))
        self.sums[key] += value
        counts[-1] += 1
        for index, bound in enumerate(self.buckets):
            if value <= bound:
                counts[index] += 1

    def lines(self) -> Iterable[str]:
        yield from _head(self.name, self.help, "histogram")
        for key, counts in list(self.counts.items()):
            for bound, count in zip((*self.buckets, "+Inf"), counts, strict=True):
                yield _line(f"{self.name}_bucket", (*key, ("le", str(bound))), count)
            yield _line(f"{self.name}_sum", key, self.sums[key])
            yield _line(f"{self.name}_count", key, counts[-1])


class HttpMetrics:
    """What the guard sees of every request."""

    def __init__(self) -> None:
        self.requests: dict[Labels, int] = defaultdict(int)
        self.seconds = Histogram("holdfast_http_request_seconds", "Time to answer a request, streams aside.")

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        self.requests[("method", method), ("route", route), ("status", str(status))] += 1
        if not route.endswith("/events"):
            self.seconds.observe(seconds, route=route)

    def lines(self) -> Iterable[str]:
        yield from _head("holdfast_http_requests_total", "Requests answered.", "counter")
        for labels, count in list(self.requests.items()):
            yield _line("holdfast_http_requests_total", labels, count)
        yield from self.seconds.lines()


class RunMetrics:
    """What this server's own driving took."""

    def __init__(self) -> None:
        self.phase = Histogram("holdfast_phase_seconds", "Time from a phase's start to its end.")
        self.step = Histogram("holdfast_step_seconds", "Time from a model or tool call's request to its answer.")
        self.commit = Histogram("holdfast_journal_commit_seconds", "Time of one commit of the journal.")
        self.batch = Histogram("holdfast_journal_batch_size", "Appends per commit.", BATCH_BUCKETS)

    def note_commit(self, batch: Sequence[Append], _results: Sequence[AppendResult], took_s: float) -> None:
        """Observe one commit of the journal."""
        self.commit.observe(took_s)
        self.batch.observe(len(batch))

    def lines(self) -> Iterable[str]:
        for histogram in (self.phase, self.step, self.commit, self.batch):
            yield from histogram.lines()


def gauge(name: str, help_text: str, values: Mapping[Labels, float], kind: str = "gauge") -> Iterable[str]:
    yield from _head(name, help_text, kind)
    for labels, value in values.items():
        yield _line(name, labels, value)


def _head(name: str, help_text: str, kind: str) -> Iterable[str]:
    yield f"# HELP {name} {help_text}"
    yield f"# TYPE {name} {kind}"


def _line(name: str, labels: Labels, value: float) -> str:
    label_text = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
    return f"{name}{{{label_text}}} {value}" if label_text else f"{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


_REQUESTS = (EventKind.MODEL_REQUEST, EventKind.TOOL_STARTED)
_ANSWERS: Mapping[str, str] = {
    EventKind.MODEL_RESPONSE: "model",
    EventKind.MODEL_ERROR: "model",
    EventKind.TOOL_RESULT: "tool",
    EventKind.TOOL_ERROR: "tool",
}
_DRIVE_STARTS = (EventKind.RUN_STARTED, EventKind.RUN_RESUMED)


async def observe_run(db: Database, journal: Journal, run_id: str, metrics: RunMetrics) -> None:
    """Add what a run's last drive took; steps by their kind, phases by their key would be too many labels."""
    events = await journal.read(run_id)
    last_start = max((index for index, event in enumerate(events) if event.kind in _DRIVE_STARTS), default=0)
    requested_at: dict[str, float] = {}
    for event in events[last_start:]:
        key = str(event.payload.get("key", ""))
        if event.kind in _REQUESTS:
            requested_at[key] = event.ts
        elif event.kind in _ANSWERS and key in requested_at:
            metrics.step.observe(max(0.0, event.ts - requested_at.pop(key)), kind=_ANSWERS[event.kind])
    since = events[last_start].ts if events else 0.0
    for row in await read_phase_times(db, run_id):
        if row.started_at and row.ended_at and _epoch(row.ended_at) >= since:
            metrics.phase.observe(max(0.0, _epoch(row.ended_at) - _epoch(row.started_at)), state=row.state)


def _epoch(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
