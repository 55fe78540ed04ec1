"""Measuring what this server does: commits as they happen, phases and steps after each drive of a run."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeGuard

from holdfast.api.metrics import RunMetrics
from holdfast.persistence.db import Database
from holdfast.persistence.listings import read_phase_times
from holdfast.runtime.checkpoint.base import Append, AppendResult
from holdfast.runtime.journal import Journal

_ANSWERS = {"model.response": "model", "model.error": "model", "tool.result": "tool", "tool.error": "tool"}


def observe_commits(journal: Journal, metrics: RunMetrics, note_heads: Callable[[dict[str, int]], None]) -> None:
    """Time each commit of a journal from now on, and say how far it has moved which runs."""

    def observe(batch: Sequence[Append], results: Sequence[AppendResult], took_s: float) -> None:
        metrics.commit.observe(took_s)
        metrics.batch.observe(len(batch))
        note_heads({one.run_id: seqs[-1] for one, seqs in zip(batch, results, strict=True) if _is_written(seqs)})

    journal.on_commit = observe


def _is_written(result: AppendResult) -> TypeGuard[list[int]]:
    return isinstance(result, list) and bool(result)


async def observe_run(db: Database, journal: Journal, run_id: str, metrics: RunMetrics) -> None:
    """Add what a run's last drive took; steps by their kind, phases by their key would be too many labels."""
    events = await journal.read(run_id)
    last_start = max((index for index, e in enumerate(events) if e.kind in ("run.started", "run.resumed")), default=0)
    asked: dict[str, float] = {}
    for event in events[last_start:]:
        key = str(event.payload.get("key", ""))
        if event.kind in ("model.request", "tool.started"):
            asked[key] = event.ts
        elif event.kind in _ANSWERS and key in asked:
            metrics.step.observe(max(0.0, event.ts - asked.pop(key)), kind=_ANSWERS[event.kind])
    since = events[last_start].ts if events else 0.0
    for row in await read_phase_times(db, run_id):
        if row.started_at and row.ended_at and _epoch(row.ended_at) >= since:
            metrics.phase.observe(max(0.0, _epoch(row.ended_at) - _epoch(row.started_at)), state=row.state)


def _epoch(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
