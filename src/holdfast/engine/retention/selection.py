"""Which runs a clean-up means, and in which order they can go."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.persistence.deletion import OVER, OverRun
from holdfast.persistence.statements import to_time_text


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which of the runs that are over: every field that is given must fit."""

    older_than: timedelta | None = None
    states: frozenset[str] = frozenset(OVER)
    keep: int = 0
    """The newest so many of all runs that are over are left alone."""
    max_bytes: int | None = None
    """Go on, the oldest first, only while the data directory is bigger than this."""


def choose(over: Sequence[OverRun], selection: Selection, now: datetime) -> list[OverRun]:
    """Return the runs that a selection means, the one that ended first at the beginning."""
    until = to_time_text(now - selection.older_than) if selection.older_than is not None else None
    newest = {run.run_id for run in over[len(over) - selection.keep :]} if selection.keep else set()
    return [
        run
        for run in over
        if run.state in selection.states
        and run.run_id not in newest
        and (until is None or "" < run.ended_at <= until)  # one without a time is of no known age
        and not run.has_open_request
    ]


def order_for_deletion(
    chosen: Iterable[OverRun], forks: Mapping[str, Sequence[str]]
) -> tuple[list[OverRun], list[OverRun]]:
    """Put forks before what they were forked from; apart from them, the runs that a fork which stays still needs."""
    going = {run.run_id: run for run in chosen}
    staying: dict[str, OverRun] = {}
    while needed := [run_id for run_id in going if any(fork not in going for fork in forks.get(run_id, ()))]:
        staying |= {run_id: going.pop(run_id) for run_id in needed}
    ordered: list[OverRun] = []
    placed: set[str] = set()
    while len(ordered) < len(going):
        free = [
            run
            for run_id, run in going.items()
            if run_id not in placed and all(fork in placed for fork in forks.get(run_id, ()))
        ]
        if not free:  # rows that go round in a circle are nobody's fork
            return ordered, [*staying.values(), *(run for run_id, run in going.items() if run_id not in placed)]
        ordered += free
        placed |= {run.run_id for run in free}
    return ordered, list(staying.values())
