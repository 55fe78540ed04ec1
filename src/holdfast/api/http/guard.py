"""The outermost layer: what is refused before any route sees it, and what every answer carries.

Rule: a request gets past here only with a known host, a change only from our own pages or from a program, and a body
is read only of somebody who is known.
"""

import ipaddress
import logging
import re
import time
import uuid
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.api.http.auth import identify_early
from holdfast.api.http.body import BodyReader, is_left_unread
from holdfast.api.http.problems import from_error, problem
from holdfast.api.options import ServerOptions
from holdfast.api.server.metrics import HttpMetrics
from holdfast.errors import HoldfastError, HostNotAllowed, OriginNotAllowed

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Server": "holdfast",  # so that nobody takes it for a model server; without a version
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_OPEN_PATHS = frozenset({"/api/session"})  # changes that need no login: they are one
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_log = logging.getLogger("holdfast.api")


class Guard:
    """Refuses what no route should see, and completes every answer."""

    def __init__(self, app: ASGIApp, *, options: ServerOptions, metrics: HttpMetrics) -> None:
        self._app = app
        self._options = options
        self._metrics = metrics
        self._bodies = BodyReader(options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = _to_request_id(headers.get("x-request-id"))
        scope.setdefault("state", {})["request_id"] = request_id
        answer = _Answer(scope, send, request_id)
        started = time.perf_counter()
        try:
            self._check(scope, headers)
            if scope["method"] in _SAFE_METHODS or not _has_route(scope):
                answer.leaves_body = is_left_unread(headers)
                await self._app(scope, receive, answer.send)
                return
            is_open = scope["path"] in _OPEN_PATHS
            answer.leaves_body = is_left_unread(headers)
            if not is_open:
                await identify_early(Request(scope))
            async with self._bodies.read(headers, receive, is_open=is_open) as replay:
                answer.leaves_body = False
                await self._app(scope, replay, answer.send)
        except HoldfastError as error:
            await answer.refuse(from_error(error, request_id), receive)
        except Exception as error:
            _log.exception("A request failed", extra={"request_id": request_id, "path": scope["path"]})
            detail = f"{type(error).__name__}. What was acknowledged is safe; the server's log has the request id."
            await answer.refuse(problem(500, "internal_error", detail, request_id=request_id), receive)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.observe(scope["method"], route, answer.status, time.perf_counter() - started)

    def _check(self, scope: Scope, headers: Headers) -> None:
        host = headers.get("host", "")
        if not self._is_known(scope, host):
            raise HostNotAllowed(f"This server does not answer to the name {host[:100]!r}.")
        if scope["method"] not in _SAFE_METHODS:
            _check_origin(scope, headers, host)

    def _is_known(self, scope: Scope, host: str) -> bool:
        name = re.sub(r":\d+$", "", host).lower()
        return name in self._options.allowed_hosts or _is_in_process(scope, name)


def _is_in_process(scope: Scope, name: str) -> bool:
    """Return true if a program calls the app inside its own process, by the one-word name that it gives it.

    Over a network a client has an address, and the server's own name is an address too; no proxy can change that one.
    """
    client, server = scope.get("client"), scope.get("server")
    if not client or not server or "." in name or ":" in name or name != server[0]:
        return False
    try:
        ipaddress.ip_address(client[0])
    except ValueError:
        return True
    return False


def _has_route(scope: Scope) -> bool:
    """Tell whether a route takes this request; if none does, nobody reads its body."""
    return any(route.matches(scope)[0] is Match.FULL for route in scope["app"].router.routes)


class _Answer:
    """The way back: adds what every response carries, and knows whether one has begun."""

    def __init__(self, scope: Scope, send: Send, request_id: str) -> None:
        self.status = 0
        self.leaves_body = False
        self._scope = scope
        self._send = send
        self._request_id = request_id

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            headers["X-Request-ID"] = self._request_id
            headers.setdefault("Cache-Control", "no-store")
            if self.leaves_body:
                headers["Connection"] = "close"  # else the server would go on to take what it has refused
            if self._scope["scheme"] == "https":
                headers.setdefault("Strict-Transport-Security", "max-age=31536000")
        await self._send(message)

    async def refuse(self, response: ASGIApp, receive: Receive) -> None:
        if self.status == 0:
            await response(self._scope, receive, self.send)


def _check_origin(scope: Scope, headers: Headers, host: str) -> None:
    """Refuse a change that pages of another site ask for.

    Browsers say where a request comes from; programs say nothing, and bring a token instead.
    """
    origin = headers.get("origin")
    if origin is not None and origin.lower() != f"{scope['scheme']}://{host}".lower():
        raise OriginNotAllowed(f"A change was asked for by pages of {urlsplit(origin).netloc[:100] or origin[:100]!r}.")
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise OriginNotAllowed("A change was asked for by pages of another site.")


def _to_request_id(header: str | None) -> str:
    return header if header and _REQUEST_ID.fullmatch(header) else uuid.uuid4().hex
