"""Limits that hold for all processes."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from holdfast.api.http.auth import Admin, Viewer
from holdfast.api.http.openapi import READ, WRITE_ONE
from holdfast.api.schemas import Text
from holdfast.api.server.server import ServerDep
from holdfast.errors import LimitInvalid
from holdfast.fleet.limits import Limit, find_differences, read_all, remove_limit, set_limit
from holdfast.workspace.transfer.remotes import is_remote

router = APIRouter(tags=["limits"])
LimitName = Annotated[Text, Field(max_length=4000)]


class SetLimit(BaseModel):
    """A limit: of `runs`, of a `workflow`, `repository` or `user`, of calls to a `provider`, or a `day`'s dollars."""

    kind: Annotated[Text, Field(max_length=40, examples=["workflow"])]
    name: LimitName = Field(default="", examples=["release"])
    amount: Annotated[float, Field(allow_inf_nan=False, strict=True)]


class LimitItem(SetLimit):
    set_at: str
    set_by: str


class LimitList(BaseModel):
    items: list[LimitItem]
    differences: list[str] = Field(description="Settings of this server that do not count.", examples=[[]])


@router.get("/api/limits", responses=READ, summary="List the limits for all processes")
async def show_limits(server: ServerDep, _identity: Viewer) -> LimitList:
    found = await read_all(server.db)
    items = [LimitItem(**asdict(limit)) for limit in found]
    return LimitList(items=items, differences=find_differences(server.config, found))


@router.put("/api/limits", responses=WRITE_ONE, status_code=204, summary="Set a limit for all processes")
async def put_limit(body: SetLimit, server: ServerDep, identity: Admin) -> None:
    """Set a limit, in place of the one that was there; runs that waited for it are looked at again."""
    if body.kind == "repository" and not (body.name.startswith("/") or is_remote(body.name)):
        raise LimitInvalid(f"{body.name!r} is no repository.", hint="Name it by its whole path, or by its URL.")
    await set_limit(server.db, Limit(body.kind, body.name, body.amount), by=identity.name)
    server.wake()


@router.delete("/api/limits", responses=WRITE_ONE, status_code=204, summary="Remove a limit")
async def delete_limit(
    server: ServerDep,
    _identity: Admin,
    kind: Annotated[Text, Query(max_length=40)],
    name: Annotated[Text, Query()] = "",
) -> None:
    await remove_limit(server.db, kind, name)
    server.wake()
