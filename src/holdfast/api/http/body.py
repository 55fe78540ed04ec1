"""The bodies of requests: how many bytes are taken, from whom, and how long is waited for them.

Rule: a body is read only after whoever sends it is known, and all bodies together have a limit.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.datastructures import Headers
from starlette.types import Message, Receive

from holdfast.api.options import MAX_BODY_BYTES, MAX_OPEN_BODY_BYTES, ServerOptions
from holdfast.errors import BodyTooLarge, BodyTooSlow, RequestInvalid, ServerBusy

_DRAINED_BYTES = 64 * 1024  # what a server that has answered still takes without closing the connection


class BodyReader:
    """Reads whole bodies, so that neither their size nor their slowness costs whoever works on them more."""

    def __init__(self, options: ServerOptions) -> None:
        self._timeout_s = options.body_timeout_s
        self._free_bytes = options.max_bodies_bytes

    @asynccontextmanager
    async def read(self, headers: Headers, receive: Receive, *, is_open: bool) -> AsyncIterator[Receive]:
        """Take the whole body, and hold it until left. With `is_open` anybody may have sent it, and it must be small.

        Raises `RequestInvalid`, `BodyTooLarge`, `BodyTooSlow`, `ServerBusy`.
        """
        limit = MAX_OPEN_BODY_BYTES if is_open else MAX_BODY_BYTES
        if find_length(headers) > limit:
            raise _too_large(limit)
        body = bytearray()
        try:
            try:
                async with asyncio.timeout(self._timeout_s):
                    await self._receive_all(receive, body, limit)
            except TimeoutError as error:
                raise BodyTooSlow(f"The body did not arrive within {self._timeout_s:g} s.") from error
            messages: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

            async def replay() -> Message:
                return messages.pop() if messages else await receive()

            yield replay
        finally:
            self._free_bytes += len(body)

    async def _receive_all(self, receive: Receive, body: bytearray, limit: int) -> None:
        has_more = True
        while has_more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            part: bytes = message.get("body", b"")
            if len(body) + len(part) > limit:
                raise _too_large(limit)
            if len(part) > self._free_bytes:
                raise ServerBusy("The server holds as many request bodies as it can.", retry_after_s=2)
            self._free_bytes -= len(part)
            body += part
            has_more = message.get("more_body", False)


def find_length(headers: Headers) -> int:
    """Return the length that a request declares for its body, 0 if it does not. Raises `RequestInvalid`."""
    declared = headers.get("content-length", "0")
    if not (declared.isascii() and declared.isdecimal()):
        raise RequestInvalid("Content-Length is no number.")
    return int(declared[:20])


def is_left_unread(headers: Headers) -> bool:
    """Return true if a body that nobody reads is too big to be taken in and forgotten."""
    if "transfer-encoding" in headers:
        return True
    declared = headers.get("content-length", "0")
    return not (declared.isascii() and declared.isdecimal()) or int(declared[:20]) > _DRAINED_BYTES


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"A body has at most {limit} bytes here.", hint="Put big files into the repository.")
