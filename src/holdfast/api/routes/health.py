"""Whether the server can work, open to all."""

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

from holdfast import __version__
from holdfast.api.http.openapi import OPEN, problems
from holdfast.api.server.server import ServerDep

router = APIRouter(tags=["catalog"])


class Health(BaseModel):
    status: Literal["ok", "unavailable"]
    version: str
    code: str | None = Field(default=None, description="Why it is not `ok`.", examples=["store_full"])


@router.get("/api/health", responses={**OPEN, **problems(503)}, summary="Whether the server can work")
async def show_health(server: ServerDep) -> Health:
    """Try whether the database answers and can be written. The answer holds for some seconds."""
    code = await server.health.find_problem()
    if code is not None:
        body = Health(status="unavailable", version=__version__, code=code).model_dump()
        return JSONResponse(body, 503)  # type: ignore[return-value]
    return Health(status="ok", version=__version__)
