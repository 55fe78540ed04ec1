"""`db check`: fold each run's journal and compare it with the rows. Rows say what is, events say what happened."""

import asyncio
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from holdfast.enums import RunPhaseState, RunStatus
from holdfast.errors import HoldfastError
from holdfast.persistence.db import Database
from holdfast.persistence.models import (
    AgentPersonaRow,
    ApprovalRow,
    ArtifactRow,
    LedgerRow,
    RunPhaseRow,
    RunRow,
    WorkflowTemplateRow,
)
from holdfast.persistence.runs import (
    StoredRun,
    find_run,
    list_runs_in_order,
    read_approvals,
    read_artifacts,
    read_ledger,
)
from holdfast.persona import AgentPersona
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.state import fold
from holdfast.workflow import WorkflowTemplate


@dataclass(frozen=True)
class Disagreement:
    """One fact on which a run's rows and its journal differ."""

    run_id: str
    what: str
    rows: str
    journal: str

    def __str__(self) -> str:
        return f"run {self.run_id}: {self.what} is {self.rows} in the rows, {self.journal} by the journal"


_PHASE_STATES: dict[str, str] = {
    EventKind.PHASE_STARTED: "running",
    EventKind.PHASE_COMPLETED: "completed",
    EventKind.PHASE_SKIPPED: "completed",
    EventKind.PHASE_FAILED: "failed",
    EventKind.PHASE_REOPENED: "pending",
    EventKind.HUMAN_APPROVAL_REQUESTED: "awaiting_approval",
}


async def check_database(db: Database) -> list[Disagreement]:
    """Return every disagreement of every run, the damaged journals among them."""
    found: list[Disagreement] = []
    for run_id in await list_runs_in_order(db):
        found += await check_run(db, run_id)
    return found


async def check_run(db: Database, run_id: str) -> list[Disagreement]:
    try:
        events = await asyncio.to_thread(db.store.list_events, run_id)
    except HoldfastError as error:
        return [Disagreement(run_id, "journal", "readable", error.message)]
    stored = await find_run(db, run_id)
    if stored is None or not any(event.kind == EventKind.RUN_CREATED for event in events):
        return []  # its rows were made without a journal; there is nothing to compare them with
    # The checks below read the events by themselves instead of through `runtime/run_fold`: a check that shared the fold
    # with those who write and show the rows would share its mistakes too.
    phases = list(stored.phases.values())
    return [
        *_check_run_row(stored.run, events),
        *_check_made_from(stored, events),
        *_check_phases(run_id, phases, events),
        *_check_approvals(run_id, await read_approvals(db, run_id=run_id), events),
        *_check_artifacts(run_id, await read_artifacts(db, run_id), events),
        *_check_ledger(run_id, await read_ledger(db, run_id), events),
    ]


def _check_run_row(run: RunRow, events: list[Event]) -> Iterator[Disagreement]:
    state = fold(events)
    status = str(state.status) if state else "pending"
    if status != run.state:
        yield Disagreement(run.id, "state", run.state, status)
    created = next(event.payload for event in events if event.kind == EventKind.RUN_CREATED)
    for name in ("repo_path", "base_branch", "template_hash"):
        if name in created and getattr(run, name) != created[name]:
            yield Disagreement(run.id, name, str(getattr(run, name)), str(created[name]))
    budget = created.get("budget_micros")
    if budget is not None:
        budget += sum(int(e.payload.get("amount_micros", 0)) for e in events if e.kind == EventKind.BUDGET_RAISED)
    if "budget_micros" in created and run.budget_micros != budget:
        yield Disagreement(run.id, "budget in micro-dollars", str(run.budget_micros), str(budget))


def _check_made_from(stored: StoredRun, events: list[Event]) -> Iterator[Disagreement]:
    """Check that template and personas are those of the hashes they were bound by."""
    run_id, run = stored.run.id, stored.run
    if stored.template is None or stored.template.hash != run.template_hash:
        there = stored.template.hash if stored.template else "missing"
        yield Disagreement(run_id, "template", there, run.template_hash)
    elif _content_hash(stored.template) != run.template_hash:
        yield Disagreement(run_id, "template's content", "another", f"the one of hash {run.template_hash}")
    created = next(event.payload for event in events if event.kind == EventKind.RUN_CREATED)
    for role_id in {*created.get("bindings", {}), *stored.bindings}:
        binding, persona = stored.bindings.get(role_id, (None, None))
        if binding is None or role_id not in created.get("bindings", {}):
            words = ("missing", "made") if binding is None else ("there", "never made")
            yield Disagreement(run_id, f"binding of {role_id}", *words)
        elif persona is None or binding.persona_hash != persona.hash or _content_hash(persona) != persona.hash:
            yield Disagreement(run_id, f"persona of {role_id}", "another", f"the one of hash {binding.persona_hash}")


def _content_hash(row: WorkflowTemplateRow | AgentPersonaRow) -> str:
    kind = WorkflowTemplate if isinstance(row, WorkflowTemplateRow) else AgentPersona
    try:
        return kind.model_validate(row.definition).content_hash
    except ValueError:
        return ""


def _check_phases(run_id: str, phases: Sequence[RunPhaseRow], events: list[Event]) -> Iterator[Disagreement]:
    states: dict[str, str] = {}
    attempts: dict[str, int] = {}
    for event in events:
        phase = event.payload.get("phase")
        is_about_phase = event.payload.get("about", "phase") == "phase"  # while a tool call waits, its phase runs
        if isinstance(phase, str) and event.kind in _PHASE_STATES and is_about_phase:
            states[phase] = _PHASE_STATES[event.kind]
            attempts[phase] = int(event.payload.get("attempt_no", attempts.get(phase, 0)))
        elif event.kind == EventKind.RUN_RESUMED and event.payload.get("after") == RunStatus.FAILED:
            states = {key: "pending" if state == RunPhaseState.FAILED else state for key, state in states.items()}
    for row in phases:
        expected = states.pop(row.phase_key, "pending")
        if row.state != expected:
            yield Disagreement(run_id, f"phase {row.phase_key}", row.state, expected)
        if attempts.get(row.phase_key) and row.attempt != attempts[row.phase_key]:
            yield Disagreement(
                run_id, f"attempt of phase {row.phase_key}", str(row.attempt), str(attempts[row.phase_key])
            )
    for phase, expected in states.items():
        yield Disagreement(run_id, f"phase {phase}", "missing", expected)


def _check_approvals(run_id: str, rows: Sequence[ApprovalRow], events: list[Event]) -> Iterator[Disagreement]:
    digests: dict[str, str] = {}
    deadlines: dict[str, str | None] = {}
    answered: dict[str, str] = {}
    superseded: set[str] = set()
    for event in events:
        approval_id = event.payload.get("approval_id")
        if event.kind == EventKind.HUMAN_APPROVAL_REQUESTED and approval_id:
            digests[approval_id] = event.payload.get("digest", "")
            deadlines[approval_id] = event.payload.get("deadline_at")
            superseded.add(event.payload.get("show", {}).get("instead_of", ""))
        elif event.kind == EventKind.RUN_CHANGED:
            superseded |= set(event.payload.get("superseded", ()))
        elif event.kind == EventKind.RUN_PAUSED:
            digests |= dict.fromkeys(event.payload.get("asked", ()), "")
        elif event.kind == EventKind.HUMAN_APPROVAL_RECEIVED and approval_id:
            answered[approval_id] = str(event.payload.get("action"))
    for row in rows:
        if row.id not in digests:
            yield Disagreement(run_id, f"approval {row.id}", row.state, "never asked")
            continue
        # An answer counts even for a question that was asked anew later: what is decided is not superseded.
        waiting = "superseded" if row.id in superseded else "pending"
        expected = (*(("decided", answered[row.id]) if row.id in answered else (waiting, None)), digests.pop(row.id))
        if (row.state, row.action, row.digest) != expected:
            yield Disagreement(
                run_id, f"approval {row.id}", f"{row.state} {row.action} {row.digest[:12]}", _words(expected)
            )
        if row.deadline_at != deadlines.get(row.id):
            yield Disagreement(
                run_id, f"deadline of approval {row.id}", str(row.deadline_at), str(deadlines.get(row.id))
            )
    for missing in digests:
        yield Disagreement(run_id, f"approval {missing}", "missing", "asked")


def _words(facts: Iterable[object]) -> str:
    return " ".join(str(fact)[:12] for fact in facts)


def _check_artifacts(run_id: str, rows: Sequence[ArtifactRow], events: list[Event]) -> Iterator[Disagreement]:
    by_key: dict[str, tuple[str, str]] = {}
    for event in events:
        for item in event.payload.get("artifacts", ()) if event.kind == EventKind.RUN_CREATED else ():
            by_key[item["key"]] = (item["hash"], item["state"])  # what a fork began with
        if event.kind == EventKind.ARTIFACT_WRITTEN and isinstance(result := event.payload.get("result"), dict):
            by_key[event.payload["key"]] = (result["hash"], "rejected" if result["findings"] else "accepted")
    for row in rows:
        key = f"{row.phase_key}/{row.attempt}/artifact{row.turn}"
        expected = by_key.pop(key, ("missing", ""))
        if (row.hash, row.state) != expected:
            yield Disagreement(run_id, f"artifact {key}", f"{row.state} {row.hash[:12]}", _words(expected))
        elif not _is_content_of(row):
            yield Disagreement(run_id, f"content of artifact {key}", "another", f"the one of hash {row.hash[:12]}")
    for key in by_key:
        yield Disagreement(run_id, f"artifact {key}", "missing", "written")


def _is_content_of(row: ArtifactRow) -> bool:
    """Compare a row's content with its hash. What was no text, or held NUL, cannot be stored exactly: it passes."""
    is_altered = "\ufffd" in row.content or "\\u0000" in row.content or not row.hash
    return is_altered or hashlib.sha256(row.content.encode()).hexdigest() == row.hash


def _check_ledger(run_id: str, rows: Sequence[LedgerRow], events: list[Event]) -> Iterator[Disagreement]:
    entries: dict[str, tuple[str, int]] = {}
    for event in events:
        entry = event.payload.get("entry")
        if isinstance(entry, str) and event.kind in (EventKind.BUDGET_RESERVED, EventKind.BUDGET_SETTLED):
            entries[entry] = (event.kind.partition(".")[2], int(event.payload.get("amount_micros", 0)))
    for row in rows:
        expected = entries.pop(row.id, ("missing", 0))
        if (row.state, row.amount_micros) != expected:
            yield Disagreement(
                run_id, f"ledger entry {row.id}", f"{row.state} {row.amount_micros}", f"{expected[0]} {expected[1]}"
            )
    for entry, (state, amount) in entries.items():
        yield Disagreement(run_id, f"ledger entry {entry}", "missing", f"{state} {amount}")
