"""The outermost layer: what is refused before any route sees it, and what every answer carries.

Rule: a request gets past here only with a known host, and a change only from our own pages or from a program.
"""

import asyncio
import logging
import re
import time
import uuid
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.api.http.problems import from_error, problem
from holdfast.api.options import MAX_BODY_BYTES, ServerOptions
from holdfast.api.server.metrics import HttpMetrics
from holdfast.errors import BodyTooLarge, BodyTooSlow, HoldfastError, HostNotAllowed, OriginNotAllowed, RequestInvalid

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
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_log = logging.getLogger("holdfast.api")


class Guard:
    """Refuses what no route should see, and completes every answer."""

    def __init__(self, app: ASGIApp, *, options: ServerOptions, metrics: HttpMetrics) -> None:
        self._app = app
        self._options = options
        self._metrics = metrics

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
            if scope["method"] not in _SAFE_METHODS:
                receive = await self._read_body(headers, receive)
            await self._app(scope, receive, answer.send)
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
        # Starlette's test client is not a network: its address cannot be had over a socket.
        is_inside = (scope.get("client") or ("",))[0] == "testclient" and name == "testserver"
        return is_inside or name in self._options.allowed_hosts

    async def _read_body(self, headers: Headers, receive: Receive) -> Receive:
        """Take the whole body before anyone works on it, so that neither its size nor its slowness costs more."""
        declared = headers.get("content-length", "0")
        if not declared.isdecimal():
            raise RequestInvalid("Content-Length is no number.")
        if int(declared[:20]) > MAX_BODY_BYTES:
            raise _too_large()
        try:
            async with asyncio.timeout(self._options.body_timeout_s):
                body = await _receive_all(receive)
        except TimeoutError as error:
            raise BodyTooSlow(f"The body did not arrive within {self._options.body_timeout_s:g} s.") from error
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return messages.pop() if messages else await receive()

        return replay


class _Answer:
    """The way back: adds what every response carries, and knows whether one has begun."""

    def __init__(self, scope: Scope, send: Send, request_id: str) -> None:
        self.status = 0
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
            if self._scope["scheme"] == "https":
                headers.setdefault("Strict-Transport-Security", "max-age=31536000")
        await self._send(message)

    async def refuse(self, response: ASGIApp, receive: Receive) -> None:
        if self.status == 0:
            await response(self._scope, receive, self.send)


async def _receive_all(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return bytes(body)
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise _too_large()
        if not message.get("more_body", False):
            return bytes(body)


def _too_large() -> BodyTooLarge:
    return BodyTooLarge(f"A body has at most {MAX_BODY_BYTES} bytes.", hint="Put big files into the repository.")


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
