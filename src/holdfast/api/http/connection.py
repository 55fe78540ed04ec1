"""One connection of a client, with the limits that the parser and the transport below it do not have.

Rule: whatever a client sends or does not read, it costs a bounded amount of memory for a bounded time.
"""

import asyncio
import json
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_WITHIN_S = 15.0
MAX_HEAD_BYTES = 64 * 1024
MAX_WAITING_REQUESTS = 8
"""How many requests a client may send before it has the answer to the first; few clients send even two."""
MIN_SENT_BYTES = 16 * 1024
"""What a client must take of an answer between two looks, `HEAD_WITHIN_S` apart; else it counts as not reading."""
_PATIENCE_LOOKS = 2
_SECURITY_HEADERS = (
    b"content-security-policy: default-src 'none'; script-src 'self'\r\nx-content-type-options: nosniff\r\n"
)


class _CountedTransport:
    """A transport that knows how much was ever written to it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.written_bytes = 0
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        self.written_bytes += len(data)
        self._transport.write(data)


class LimitedConnection(HttpToolsProtocol):
    """Closes itself if no whole request has come for a while, if a head grows too big, or if nobody reads the answer.

    Streams and answers under way are left alone as long as their client takes something of them.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._counted = _CountedTransport(transport)
        super().connection_made(cast(asyncio.Transport, self._counted))
        self._request_before: object = None
        self._unsent_before = self._taken_before = 0
        self._idle_looks = 0
        self._head_bytes = 0
        self._bytes_without_progress = 0
        self._is_head_too_big = False
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    # -- what comes in ------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        # What brings neither a whole head nor a part of a body is kept by the parser: a head, trailers, chunk lines.
        self._bytes_without_progress += len(data)
        super().data_received(data)
        if self._bytes_without_progress > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._is_head_too_big = True
            self.send_400_response("")

    def on_message_begin(self) -> None:
        self._head_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value))  # those after a chunked body come here as well
        super().on_header(name, value)

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            self._is_head_too_big = True
            raise ValueError("the head is too big")  # the parser stops, and the request is refused

    def on_headers_complete(self) -> None:
        self._bytes_without_progress = 0
        if len(self.pipeline) >= MAX_WAITING_REQUESTS:
            # A request of 40 bytes costs more than 2 KB while it waits. What follows would not be told from the answer
            # that is under way, so nothing is said.
            self.transport.close()
            raise ValueError("too many requests wait")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._bytes_without_progress = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._bytes_without_progress = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be read as a request, as every refusal looks, and close the connection."""
        if self.transport.is_closing():
            return
        status, title = (431, "Request Header Fields Too Large") if self._is_head_too_big else (400, "Bad Request")
        detail = f"A head has at most {MAX_HEAD_BYTES} bytes." if self._is_head_too_big else "This is no HTTP request."
        code = "head_too_large" if self._is_head_too_big else "request_invalid"
        content = {"type": "about:blank", "title": title, "status": status, "code": code, "detail": detail}
        body = json.dumps(content).encode()
        self.transport.write(
            b"HTTP/1.1 %d %s\r\ncontent-type: application/problem+json\r\n" % (status, title.encode())
            + _SECURITY_HEADERS
            + b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body)
            + body
        )
        self.transport.close()

    # -- what goes out, and how long is waited ------------------------------------------------------------------------

    def _watch(self) -> None:
        self._timer: asyncio.TimerHandle = self.loop.call_later(HEAD_WITHIN_S, self._look)

    def _look(self) -> None:
        if self._is_unread():
            self.transport.abort()  # to close it politely would wait for the client to read the rest
            return
        request = self.cycle
        is_waiting = request is None or request.response_complete
        if is_waiting and request is self._request_before:
            self.transport.close()
        self._request_before = request
        self._watch()

    def _is_unread(self) -> bool:
        """Return true if the client has taken next to nothing of what lay here, at this look and the one before."""
        unsent = self._counted.get_write_buffer_size()
        taken = self._counted.written_bytes - unsent
        is_idle = taken - self._taken_before < min(MIN_SENT_BYTES, self._unsent_before)
        self._idle_looks = self._idle_looks + 1 if is_idle else 0
        self._unsent_before, self._taken_before = unsent, taken
        return self._idle_looks >= _PATIENCE_LOOKS
