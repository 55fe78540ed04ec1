"""Two runs compared, as two forks of one are: what each came to and cost, its artifacts, its files."""

import asyncio
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query

from holdfast.api.http.auth import Viewer
from holdfast.api.http.openapi import READ_ONE, problems
from holdfast.api.results import Changes, find_artifact, read_trees, to_changes, to_comparison
from holdfast.api.schemas import RunIdPath, ShortText
from holdfast.api.serialize import record_requests, to_heading, to_question, to_usd
from holdfast.api.server.server import Server, ServerDep
from holdfast.engine.patch import RecordedFiles, compare_results
from holdfast.engine.run.load import get_run
from holdfast.enums import RunPhaseState
from holdfast.errors import ArtifactNotFound
from holdfast.persistence.models import RunPhaseRow, RunRow
from holdfast.persistence.runs import StoredRun, read_approvals, read_artifacts, read_spent
from holdfast.persistence.statements.table import to_time_text
from holdfast.persistence.statistics import seconds_between
from holdfast.presentation.format import cost
from holdfast.presentation.run_comparison import ComparedPhase, ComparedRun, RunComparison, compare_runs
from holdfast.presentation.status import Note, describe_run
from holdfast.presentation.trace import RunTrace

router = APIRouter(prefix="/api/runs", tags=["results"])
Other = Annotated[ShortText, Query(alias="with", description="The id of the other run.")]


@router.get("/{run_id}/comparison", responses=READ_ONE, summary="Compare two runs")
async def show_comparison(run_id: RunIdPath, server: ServerDep, _identity: Viewer, other: Other) -> RunComparison:
    """Compare what two runs came to, cost and took, and which of their artifacts differ."""
    sides = [await _read_side(server, await get_run(server.db, one)) for one in (run_id, other)]
    return await asyncio.to_thread(compare_runs, *sides)


@router.get(
    "/{run_id}/comparison/changes",
    responses={**READ_ONE, **problems(409)},
    summary="How the results of two runs differ",
)
async def list_comparison_changes(
    run_id: RunIdPath,
    server: ServerDep,
    _identity: Viewer,
    other: Other,
    phase: Annotated[ShortText | None, Query(description="The artifacts of this phase, instead of the files.")] = None,
) -> Changes:
    """Show what would have to change in the files of the first run to have those of the second."""
    runs = [await get_run(server.db, one) for one in (run_id, other)]
    if phase is None:
        sides = [await _read_files(server, stored) for stored in runs]
        patch = await asyncio.to_thread(compare_results, server.config.data_dir, *sides)
        return await asyncio.to_thread(to_changes, patch, is_split=False)
    found = [find_artifact(await read_artifacts(server.db, stored.run.id), phase, None) for stored in runs]
    rows = [row for row in found if row is not None]
    if not rows:
        raise ArtifactNotFound(f"Neither run has an artifact of phase {phase}.")
    before, after = (row.content if row is not None else "" for row in found)
    return await asyncio.to_thread(to_comparison, rows[-1].path, before, after)


async def _read_files(server: Server, stored: StoredRun) -> RecordedFiles:
    trees = await read_trees(server, stored)
    return RecordedFiles(stored.run.id, trees, stored.template.definition if stored.template else None)


async def _read_side(server: Server, stored: StoredRun) -> ComparedRun:
    run = stored.run
    trace = await server.traces.get(run.id)
    questions = [to_question(row) for row in await read_approvals(server.db, run_id=run.id, state="pending")]
    status = describe_run(record_requests(run, stored.phases.values(), questions), trace)
    spent = await read_spent(server.db, run.id)
    artifacts = await read_artifacts(server.db, run.id)
    found = {key: find_artifact(artifacts, key, None) for key in stored.phases}
    return ComparedRun(
        run_id=run.id,
        heading=to_heading(run),
        headline=Note(status.tone, status.text),
        cost=cost(to_usd(spent.total_micros), to_usd(spent.simulated_micros)),
        took_s=_measure(run),
        usage=trace.money.total,
        phases={key: _to_phase(row, trace, run) for key, row in stored.phases.items()},
        artifacts={key: (row.path, row.content) for key, row in found.items() if row is not None},
    )


def _measure(run: RunRow) -> float:
    end = run.ended_at or to_time_text(datetime.now(UTC))
    return seconds_between(run.started_at or run.created_at, end) or 0.0


def _to_phase(row: RunPhaseRow, trace: RunTrace, run: RunRow) -> ComparedPhase:
    total = trace.money.by_phase.get(row.phase_key)
    usd = to_usd(total.micros) if total is not None else 0.0
    amount = cost(0.0, usd) if run.is_simulated else cost(usd, 0.0)
    took = seconds_between(row.started_at, row.ended_at)
    is_begun = row.state != RunPhaseState.PENDING
    return ComparedPhase(row.state.replace("_", " "), row.attempt, took, amount if is_begun else "")
