"""The tokens of programs."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi import Path as PathParam

from holdfast.api.access_schemas import CreatedToken, CreateToken, RevokedToken, TokenList
from holdfast.api.http.auth import Admin
from holdfast.api.http.openapi import READ, WRITE, WRITE_ONE
from holdfast.api.schemas import ShortText
from holdfast.api.serialize import to_tokens
from holdfast.api.server.server import ServerDep
from holdfast.errors import RoleInsufficient
from holdfast.persistence.access import create_token, list_tokens, read_token_end, revoke_token
from holdfast.persistence.statements import now_text, to_time_text

router = APIRouter(tags=["access"])


@router.get("/api/tokens", responses=READ, summary="List tokens")
async def show_tokens(server: ServerDep, _identity: Admin) -> TokenList:
    return TokenList(items=to_tokens(await list_tokens(server.db), now_text()))


@router.post("/api/tokens", status_code=201, responses=WRITE, summary="Make a token")
async def make_token(body: CreateToken, server: ServerDep, identity: Admin) -> CreatedToken:
    """Make a token. It is in this answer and nowhere else, and it ends no later than the token that made it."""
    days = body.expires_in_days
    ends = [None if days is None else to_time_text(datetime.now(UTC) + timedelta(days=days))]
    ends.append(await read_token_end(server.db, identity.token_id))
    expires_at = min((end for end in ends if end is not None), default=None)
    if not identity.role.includes(body.role):
        raise RoleInsufficient(f"A token of role {body.role} is not for {identity.role} to make.")
    new = await create_token(
        server.journal,
        name=body.name,
        role=body.role,
        expires_at=expires_at,
        by=identity.name,
        by_token_id=identity.token_id,
    )
    return CreatedToken(id=new.token_id, token=new.token, expires_at=expires_at)


@router.delete("/api/tokens/{token_id}", responses=WRITE_ONE, summary="Revoke a token")
async def take_back_token(
    token_id: Annotated[ShortText, PathParam()],
    server: ServerDep,
    identity: Admin,
    keep_children: Annotated[bool, Query(description="Leave the tokens that were made with it as they are.")] = False,
) -> RevokedToken:
    """Revoke a token, the tokens that were made with it, and theirs; the sessions of all of them end."""
    done = await revoke_token(server.db, server.journal, token_id, by=identity.name, keep_children=keep_children)
    return RevokedToken(id=token_id, tokens=done.tokens, sessions=done.sessions)
