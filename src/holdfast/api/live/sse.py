"""Server-sent events as a response: it is sent as it comes, to a client that may stop reading or lose its right to."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.api.options import ServerOptions
from holdfast.concurrency import shielded
from holdfast.errors import HoldfastError

_log = logging.getLogger("holdfast.api")
_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store, no-transform",
    "X-Accel-Buffering": "no",
}


class EventStream(Response):
    """A response without an end of its own.

    It ends with its client, when that one stops reading, or when they would not be let in any more.
    """

    def __init__(
        self, frames: AsyncGenerator[bytes, None], is_still_in: Callable[[], Awaitable[bool]], options: ServerOptions
    ) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._frames = frames
        self._is_still_in = is_still_in
        self._options = options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send_all(send))
        leaving = asyncio.create_task(_wait_for_disconnect(receive))
        shutting_out = asyncio.create_task(self._wait_until_out())
        tasks = (sending, leaving, shutting_out)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if not sending.cancelled() and (error := sending.exception()) is not None:
            raise error

    async def _wait_until_out(self) -> None:
        # An error here ends the stream as well: who may still be in comes back, and is asked again.
        is_in = True
        while is_in:
            await asyncio.sleep(self._options.recheck_s)
            is_in = await shielded(self._is_still_in())

    async def _send_all(self, send: Send) -> None:
        async with contextlib.aclosing(self._frames) as frames:
            with _SendTimeout(self._options.send_timeout_s) as patience:
                patience.begin()
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                # The first bytes at once: a proxy and a browser take a stream for open only when something has come.
                # They begin the first frame instead of being one: some clients take every blank line for an event.
                await send({"type": "http.response.body", "body": b"retry: 1000\n", "more_body": True})
                patience.end()
                try:
                    async for frame in frames:
                        patience.begin()
                        await send({"type": "http.response.body", "body": frame, "more_body": True})
                        patience.end()
                except HoldfastError as error:
                    # Too late for a refusal: it ends without its last frame, and the client comes back for the rest.
                    _log.warning("An event stream was cut short: %s", error.code)
                patience.begin()
                await send({"type": "http.response.body", "body": b"", "more_body": False})


class _SendTimeout:
    """Cancels the task that it was made in once one of its sends takes too long.

    It looks at the clock once in a while: to set one for each event and client costs as much as all the rest of it.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._began_at: float | None = None
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()

    def __enter__(self) -> "_SendTimeout":
        self._timer = self._loop.call_later(self._limit_s, self._look)
        return self

    def __exit__(self, *_error: object) -> None:
        self._timer.cancel()
        self._task = None

    def begin(self) -> None:
        self._began_at = self._loop.time()

    def end(self) -> None:
        self._began_at = None

    def _look(self) -> None:
        now = self._loop.time()
        over_at = (self._began_at if self._began_at is not None else now) + self._limit_s
        if now >= over_at and self._task is not None:
            self._task.cancel()
        else:
            self._timer = self._loop.call_at(over_at, self._look)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
