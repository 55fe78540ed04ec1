"""Running the app as a server of its own: socket, login link, and an end that gives the runs up."""

import asyncio
import getpass
import logging
import signal
import socket
import webbrowser
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import FrameType

import uvicorn
from fastapi import FastAPI
from uvicorn.server import HANDLED_SIGNALS

from holdfast.api.app import create_app
from holdfast.api.http.auth import Identity
from holdfast.api.http.connection import LimitedConnection
from holdfast.api.options import LOOPBACK_NAMES, ServerOptions
from holdfast.api.server.log_limit import limit_repeats
from holdfast.concurrency import exit_within
from holdfast.config import Config
from holdfast.enums import Role
from holdfast.errors import ConfigInvalid, HoldfastError
from holdfast.fleet.drain import Drain
from holdfast.keys import hide_environment

_AT_ONCE_S = 5.0  # for runs that are given up to be let go of; without the database they cannot be
_STREAM_GRACE_S = 3  # for requests under way; streams are ended before, and their clients come back


class GracefulServer(uvicorn.Server):
    """Announces itself when signals reach it, and ends the streams first when it is told to stop.

    A second signal gives up what is in flight at once, and a third ends the process.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        announce: Callable[[], Awaitable[None]] | None = None,
        say: Callable[[str], None] = lambda _text: None,
    ) -> None:
        super().__init__(config)
        self._announce = announce
        self._say = say
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drain: Drain | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        # Here, and not in the app's own start: what cannot be opened is said in one line, and nothing was announced.
        await self.config.app.state.holder.get()  # type: ignore[union-attr]
        if self._announce is not None:  # not before: Ctrl-C from who read it would meet a loop that is half made
            await self._announce()
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Streams have no end of their own; waiting for them would use up the time that the runs need.
        holder = self.config.app.state.holder  # type: ignore[union-attr]
        self._drain = holder.drain()
        if self._drain is not None and self._drain.run_ids:
            self._say(f"{self._drain.describe()} Ctrl-C again ends it now.")
            if self.force_exit:  # the second signal was faster
                self._drain.give_up()
        holder.end_streams()
        await super().shutdown(sockets)
        if self.force_exit:  # what was given up lets go of its run all the same
            await self.lifespan.shutdown()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        is_second, loop = self.should_exit, self._loop
        super().handle_exit(sig, frame)
        if is_second and loop is not None:
            self.force_exit = True
            loop.call_soon_threadsafe(self._give_up, 128 + sig)
            for number in HANDLED_SIGNALS:
                signal.signal(number, signal.SIG_DFL)

    def _give_up(self, exit_code: int) -> None:
        exit_within(_AT_ONCE_S, exit_code)
        if self._drain is not None:
            self._drain.give_up()


def run_server(
    host: str,
    port: int,
    *,
    config: Config,
    options: ServerOptions,
    opens_browser: bool,
    say: Callable[[str], None],
) -> None:
    """Serve until a signal ends it. Raises `ConfigInvalid` if the address cannot be had."""
    hide_environment()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    limit_repeats(logging.getLogger())
    name_in_url = f"[{host}]" if ":" in host else host
    names = LOOPBACK_NAMES | {name.lower() for name in options.allowed_hosts} | {name_in_url.lower()}
    app = create_app(config, options=replace(options, allowed_hosts=names))
    listening = _listen(host, port)
    here = f"http://{_reachable(name_in_url)}:{listening.getsockname()[1]}/"

    async def announce() -> None:
        say(f"holdfast serves {here}")
        link = here
        if options.has_auth:
            try:
                server = await app.state.holder.get()
                code = await app.state.access.create_link(server, Identity(_user(), Role.ADMIN))
            except HoldfastError:
                return  # the app meets the same when it starts, and says so
            link = f"{here}login?code={code}"
            say(f"Log in once, within 15 minutes: {link}")
        if opens_browser:
            webbrowser.open(link)

    GracefulServer(to_uvicorn(app), announce, say).run(sockets=[listening])


def to_uvicorn(app: FastAPI) -> uvicorn.Config:
    """Configure how the app is served; what a proxy says of its clients is believed of those that the settings name."""
    proxies = app.state.holder.config.trusted_proxies
    return uvicorn.Config(
        app,
        http=LimitedConnection,
        ws="none",
        log_config=None,  # to the handlers of the program, which leave out what repeats itself
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        timeout_graceful_shutdown=_STREAM_GRACE_S,
        limit_concurrency=2000,
    )


def _listen(host: str, port: int) -> socket.socket:
    """Bind here, so that a port of 0 is known before anyone is told of it."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(2048)  # from here on a client that was told the address waits instead of being refused
    except OSError as error:
        raise ConfigInvalid(
            f"{host}:{port} cannot be listened on: {error.strerror}.", hint="Take another --port.", key="--port"
        ) from error
    listening.set_inheritable(True)
    return listening


def _reachable(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)  # noqa: S104 - what was asked for


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "owner"
