"""Connections that must get to the point: a request's head has to arrive in time, as its body has (see `guard`)."""

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEAD_WITHIN_S = 15.0


class LimitedConnection(AutoHTTPProtocol):  # type: ignore[misc,valid-type]  # one of two classes, known at run time
    """Closes itself if no whole request has come for a while; streams and answers under way are left alone."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._request_before: object = None
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def _watch(self) -> None:
        self._timer: asyncio.TimerHandle = self.loop.call_later(HEAD_WITHIN_S, self._look)

    def _look(self) -> None:
        request = self.cycle
        is_waiting = request is None or request.response_complete
        if is_waiting and request is self._request_before:
            self.transport.close()
            return
        self._request_before = request
        self._watch()
