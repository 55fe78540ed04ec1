"""What a run came to, for whoever has to decide what happens with it."""

import asyncio

from fastapi import APIRouter

from holdfast.api.http.auth import Viewer
from holdfast.api.http.openapi import READ_ONE
from holdfast.api.routes.run.merge import check_push
from holdfast.api.schemas import RunIdPath
from holdfast.api.serialize import record_requests
from holdfast.api.server.server import ServerDep
from holdfast.engine.pull_request import find_form
from holdfast.engine.run.load import get_run
from holdfast.errors import RepositoryNotAllowed
from holdfast.persistence.carried_files import find_base, find_report
from holdfast.persistence.runs import StoredRun, read_artifacts
from holdfast.presentation.run_outcome import MergeTarget, Review, RunOutcome, describe_outcome, read_review
from holdfast.presentation.status import find_refusals

router = APIRouter(prefix="/api/runs", tags=["results"])


@router.get("/{run_id}/outcome", responses=READ_ONE, summary="What a run came to")
async def show_outcome(run_id: RunIdPath, server: ServerDep, identity: Viewer) -> RunOutcome:
    """Show the review's verdict, the changed files, the commands and what to do next; of a run under way, so far."""
    stored = await get_run(server.db, run_id)
    facts = record_requests(stored.run, stored.phases.values())
    base = await find_base(server.db, stored.run.id)
    is_private = base is not None and base.is_private
    run = stored.run
    form = await asyncio.to_thread(find_form, server.config.data_dir, run)
    why = None
    try:
        check_push(server, identity, form)
    except RepositoryNotAllowed as refused:
        why = refused.message
    return describe_outcome(
        facts,
        await server.traces.get(stored.run.id),
        await find_report(server.db, stored.run.id) or {},
        review=await _find_review(server, stored),
        refusals=find_refusals(facts, identity.role),
        target=MergeTarget(run.repo_path if is_private else run.base_branch, form.host if form else "", why),
    )


async def _find_review(server: ServerDep, stored: StoredRun) -> Review | None:
    """Find the review of the last phase that handed one in."""
    rows = await read_artifacts(server.db, stored.run.id)
    accepted = {row.phase_key: row.content for row in rows if row.state == "accepted"}
    found = [read_review(key, accepted[key]) for key in stored.phases if key in accepted]
    return next((review for review in reversed(found) if review), None)
