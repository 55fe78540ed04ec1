"""Letting people and programs in: login, logout, tokens."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi import Path as PathParam
from starlette.responses import RedirectResponse, Response

from holdfast.api.http.auth import COOKIE, Admin, Identity, Viewer, address_of, get_access
from holdfast.api.http.openapi import OPEN, READ, WRITE, WRITE_ONE, problems
from holdfast.api.schemas import CreatedToken, CreateToken, LogIn, ServerDep, SessionInfo, ShortText, TokenList
from holdfast.api.serialize import to_tokens
from holdfast.api.server.server import Server
from holdfast.errors import NotAuthenticated, RequestInvalid
from holdfast.persistence.access import create_token, end_session, list_tokens, revoke_token
from holdfast.persistence.statements import now_text, to_time_text

router = APIRouter(tags=["access"])


@router.get("/api/session", responses=READ, summary="Who you are")
async def show_session(identity: Viewer) -> SessionInfo:
    return SessionInfo(name=identity.name, role=identity.role, expires_at=identity.expires_at)


@router.post("/api/session", responses=WRITE, summary="Log a browser in")
async def log_in(body: LogIn, request: Request, response: Response, server: ServerDep) -> SessionInfo:
    """Log in by a token, or by the code of a login link. The answer sets the cookie."""
    identity = await _identify(body, request, server)
    expires_at = await _set_cookie(identity, request, response, server)
    return SessionInfo(name=identity.name, role=identity.role, expires_at=expires_at)


async def _identify(body: LogIn, request: Request, server: Server) -> Identity:
    access = get_access(request)
    if (body.token is None) == (body.code is None):
        raise RequestInvalid("A login needs either a token or a code.")
    if body.token is not None:
        return await access.identify_token(server, body.token, address_of(request))
    return access.identify_link(body.code or "", address_of(request))


async def _set_cookie(identity: Identity, request: Request, response: Response, server: Server) -> str:
    secret, expires_at = await get_access(request).log_in(server, identity, request.cookies.get(COOKIE))
    response.set_cookie(
        COOKIE,
        secret,
        max_age=round(server.options.session_hours * 3600),
        path="/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return expires_at


@router.delete("/api/session", status_code=204, responses=OPEN | problems(400, 403, 408, 413), summary="Log out")
async def log_out(request: Request, response: Response, server: ServerDep) -> None:
    if secret := request.cookies.get(COOKIE):
        await end_session(server.journal, secret)
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")


@router.get("/login", include_in_schema=False)
async def follow_link(request: Request, server: ServerDep, code: Annotated[ShortText, Query(min_length=1)]) -> Response:
    """Follow the link that `holdfast serve` prints: it works once. If it does not, a person is led to a page that
    says what to do."""
    try:
        identity = get_access(request).identify_link(code, address_of(request))
    except NotAuthenticated:
        if "text/html" not in request.headers.get("accept", ""):
            raise
        return RedirectResponse("/sign-in?problem=link", 303)
    response = RedirectResponse("/", 303)
    await _set_cookie(identity, request, response, server)
    return response


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
