"""Whether the server can work, open to all."""

from fastapi import APIRouter
from starlette.responses import JSONResponse

from holdfast import __version__
from holdfast.api.http.openapi import OPEN, problems
from holdfast.api.schemas import Health
from holdfast.api.server.server import ServerDep
from holdfast.persistence.listings import count_by_state

router = APIRouter(tags=["catalog"])


@router.get("/api/health", responses={**OPEN, **problems(503)}, summary="Whether the server can work")
async def show_health(server: ServerDep) -> Health:
    try:
        await count_by_state(server.db)
    except Exception:  # whatever the driver calls it: the database does not answer
        body = Health(status="unavailable", version=__version__).model_dump()
        return JSONResponse(body, 503)  # type: ignore[return-value]
    return Health(status="ok", version=__version__)
