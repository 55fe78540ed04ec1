"""The tokens of programs."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter
from fastapi import Path as PathParam

from holdfast.api.http.auth import Admin
from holdfast.api.http.openapi import READ, WRITE, WRITE_ONE
from holdfast.api.schemas import CreatedToken, CreateToken, ShortText, TokenList
from holdfast.api.serialize import to_tokens
from holdfast.api.server.server import ServerDep
from holdfast.persistence.access import create_token, list_tokens, revoke_token
from holdfast.persistence.statements import now_text, to_time_text

router = APIRouter(tags=["access"])


@router.get("/api/tokens", responses=READ, summary="List tokens")
async def show_tokens(server: ServerDep, _identity: Admin) -> TokenList:
    return TokenList(items=to_tokens(await list_tokens(server.db), now_text()))


@router.post("/api/tokens", status_code=201, responses=WRITE, summary="Make a token")
async def make_token(body: CreateToken, server: ServerDep, identity: Admin) -> CreatedToken:
    """Make a token. It is in this answer and nowhere else."""
    days = body.expires_in_days
    expires_at = None if days is None else to_time_text(datetime.now(UTC) + timedelta(days=days))
    new = await create_token(server.journal, name=body.name, role=body.role, expires_at=expires_at, by=identity.name)
    return CreatedToken(id=new.token_id, token=new.token)


@router.delete("/api/tokens/{token_id}", status_code=204, responses=WRITE_ONE, summary="Revoke a token")
async def take_back_token(token_id: Annotated[ShortText, PathParam()], server: ServerDep, identity: Admin) -> None:
    """Revoke a token; its sessions end with it."""
    await revoke_token(server.journal, token_id, by=identity.name)
