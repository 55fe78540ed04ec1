"""What a run was started with, to start one like it."""

from fastapi import APIRouter

from holdfast.api.http.auth import Viewer
from holdfast.api.http.openapi import READ_ONE
from holdfast.api.schemas import RunIdPath, StartRun
from holdfast.api.serialize import to_usd
from holdfast.api.server.server import ServerDep
from holdfast.binding import explains_override
from holdfast.engine.run.load import get_run

router = APIRouter(prefix="/api/runs", tags=["runs"])
# Chosen anew for every run: a time passes, images are megabytes, and no sandbox is a person's decision each time.
_CHOSEN_ANEW = {"at", "images", "unsandboxed"}


@router.get(
    "/{run_id}/request",
    responses=READ_ONE,
    summary="What a run was started with",
    response_model_exclude=_CHOSEN_ANEW,
)
async def show_request(run_id: RunIdPath, server: ServerDep, _identity: Viewer) -> StartRun:
    """Answer with a body for `POST /api/runs`, to start one like it. Personas only where they were asked for; no
    images, no time and no leave to go without a sandbox, which are chosen anew.
    """
    stored = await get_run(server.db, run_id)
    run = stored.run
    overrides = {
        role_id: persona.name
        for role_id, (binding, persona) in stored.bindings.items()
        if persona is not None and explains_override(binding.explanation)
    }
    # As it is: what was accepted once is told, even if it would be refused by now.
    return StartRun.model_construct(
        workflow=run.workflow,
        repo_path=run.repo_path,
        base_branch=run.base_branch,
        requirements_md=run.requirements_md,
        persona_overrides=overrides,
        simulate=bool(run.is_simulated),
        budget_usd=None if run.budget_micros is None else to_usd(run.budget_micros),
        title=run.title,
        queue=run.queue,
        priority=run.priority,
    )
