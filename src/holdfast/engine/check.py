"""`db check`: fold each run's journal and compare it with the rows. Rows say what is, events say what happened."""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import func, select

from holdfast.errors import HoldfastError
from holdfast.persistence.db import Database
from holdfast.persistence.models import ApprovalRow, ArtifactRow, LedgerRow, RunPhaseRow, RunRow
from holdfast.runtime.events import Event
from holdfast.runtime.state import fold


@dataclass(frozen=True)
class Disagreement:
    """One fact on which a run's rows and its journal differ."""

    run_id: str
    what: str
    rows: str
    journal: str

    def __str__(self) -> str:
        return f"run {self.run_id}: {self.what} is {self.rows} in the rows, {self.journal} by the journal"


_PHASE_STATES = {
    "phase.started": "running",
    "phase.completed": "completed",
    "phase.skipped": "completed",
    "phase.failed": "failed",
    "phase.reopened": "pending",
    "human.approval.requested": "awaiting_approval",
}


async def check_database(db: Database) -> list[Disagreement]:
    """Every disagreement of every run, the damaged journals among them."""
    async with db.session() as session:
        run_ids = list(await session.scalars(select(RunRow.id).order_by(RunRow.created_at)))
    found: list[Disagreement] = []
    for run_id in run_ids:
        found += await check_run(db, run_id)
    return found


async def check_run(db: Database, run_id: str) -> list[Disagreement]:
    try:
        events = db.store.list_events(run_id)
    except HoldfastError as error:
        return [Disagreement(run_id, "journal", "readable", error.message)]
    async with db.session() as session:
        run = await session.get(RunRow, run_id)
        phases = list(await session.scalars(select(RunPhaseRow).where(RunPhaseRow.run_id == run_id)))
        approvals = list(await session.scalars(select(ApprovalRow).where(ApprovalRow.run_id == run_id)))
        artifacts = await session.scalar(
            select(func.count()).select_from(ArtifactRow).where(ArtifactRow.run_id == run_id)
        )
        ledger = list(await session.scalars(select(LedgerRow).where(LedgerRow.run_id == run_id)))
    assert run is not None
    if not any(event.kind == "run.created" for event in events):
        return []  # its rows were made without a journal; there is nothing to compare them with
    return [
        *_check_state(run, events),
        *_check_phases(run_id, phases, events),
        *_check_approvals(run_id, approvals, events),
        *_check_artifacts(run_id, int(artifacts or 0), events, is_fork=run.forked_from is not None),
        *_check_ledger(run_id, ledger, events),
    ]


def _check_state(run: RunRow, events: list[Event]) -> Iterable[Disagreement]:
    state = fold(events)
    told = str(state.status) if state else "pending"
    if told != run.state:
        yield Disagreement(run.id, "state", run.state, told)


def _check_phases(run_id: str, phases: list[RunPhaseRow], events: list[Event]) -> Iterable[Disagreement]:
    told: dict[str, str] = {}
    is_fork = any("forked_from" in event.payload for event in events[:1])
    for event in events:
        phase = event.payload.get("phase")
        if isinstance(phase, str) and event.kind in _PHASE_STATES:
            told[phase] = _PHASE_STATES[event.kind]
        elif event.kind == "run.resumed" and event.payload.get("after") == "failed":
            told = {key: "pending" if state == "failed" else state for key, state in told.items()}
    for row in phases:
        expected = told.get(row.phase_key, "pending")
        if row.state != expected and not (is_fork and row.phase_key not in told):
            yield Disagreement(run_id, f"phase {row.phase_key}", row.state, expected)


def _check_approvals(run_id: str, rows: list[ApprovalRow], events: list[Event]) -> Iterable[Disagreement]:
    asked = {e.payload.get("approval_id") for e in events if e.kind == "human.approval.requested"} - {None}
    answered = {
        e.payload["approval_id"]: e.payload.get("action")
        for e in events
        if e.kind == "human.approval.received" and e.payload.get("approval_id")
    }
    for row in rows:
        if row.id not in asked:
            yield Disagreement(run_id, f"approval {row.id}", row.state, "never asked")
        elif row.action != answered.get(row.id):
            yield Disagreement(run_id, f"approval {row.id}", str(row.action), str(answered.get(row.id)))
    for missing in asked - {row.id for row in rows}:
        yield Disagreement(run_id, f"approval {missing}", "missing", "asked")


def _check_artifacts(run_id: str, rows: int, events: list[Event], *, is_fork: bool) -> Iterable[Disagreement]:
    written = sum(event.kind == "artifact.written" for event in events)
    if written != rows and not is_fork:
        yield Disagreement(run_id, "number of artifacts", str(rows), str(written))


def _check_ledger(run_id: str, rows: list[LedgerRow], events: list[Event]) -> Iterable[Disagreement]:
    told: dict[str, tuple[str, int]] = {}
    for event in events:
        entry = event.payload.get("entry")
        if isinstance(entry, str) and event.kind in ("budget.reserved", "budget.settled"):
            told[entry] = (event.kind.partition(".")[2], int(event.payload.get("amount_micros", 0)))
    for row in rows:
        expected = told.pop(row.id, ("missing", 0))
        if (row.state, row.amount_micros) != expected:
            yield Disagreement(
                run_id, f"ledger entry {row.id}", f"{row.state} {row.amount_micros}", f"{expected[0]} {expected[1]}"
            )
    for entry, (state, amount) in told.items():
        yield Disagreement(run_id, f"ledger entry {entry}", "missing", f"{state} {amount}")
