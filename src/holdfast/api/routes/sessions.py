"""Letting people in: login, logout, and who one is."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from holdfast.api.access_schemas import LogIn, SessionInfo
from holdfast.api.http.auth import COOKIE, Identity, Viewer, address_of, get_access
from holdfast.api.http.openapi import OPEN, READ, WRITE, problems
from holdfast.api.schemas import ShortText
from holdfast.api.server.server import Server, ServerDep
from holdfast.errors import NotAuthenticated, RequestInvalid
from holdfast.persistence.access import end_session

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
        return await access.identify_login(server, body.token, address_of(request))
    return await access.identify_link(server, body.code or "", address_of(request))


async def _set_cookie(identity: Identity, request: Request, response: Response, server: Server) -> str:
    secret, expires_at = await get_access(request).log_in(server, identity, request.cookies.get(COOKIE))
    response.set_cookie(
        COOKIE,
        secret,
        max_age=_seconds_until(expires_at) if identity.expires_at else round(server.options.session_hours * 3600),
        path="/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return expires_at


def _seconds_until(moment: str) -> int:
    return max(1, round((datetime.fromisoformat(moment) - datetime.now(UTC)).total_seconds()))


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
        identity = await get_access(request).identify_link(server, code, address_of(request))
    except NotAuthenticated:
        if "text/html" not in request.headers.get("accept", ""):
            raise
        return RedirectResponse("/sign-in?problem=link", 303)
    response = RedirectResponse("/", 303)
    await _set_cookie(identity, request, response, server)
    return response
