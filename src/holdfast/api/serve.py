"""Running the app as a server of its own: socket, login link, and an end that gives the runs up."""

import getpass
import logging
import socket
import webbrowser
from collections.abc import Awaitable, Callable
from dataclasses import replace

import uvicorn
from fastapi import FastAPI

from holdfast.api.app import create_app
from holdfast.api.http.auth import Identity
from holdfast.api.http.connection import LimitedConnection
from holdfast.api.options import LOOPBACK_NAMES, ServerOptions
from holdfast.api.server.log_limit import limit_repeats
from holdfast.config import Config
from holdfast.enums import Role
from holdfast.errors import ConfigInvalid, HoldfastError
from holdfast.keys import hide_environment

_STREAM_GRACE_S = 3  # for requests under way; streams are ended before, and their clients come back


class GracefulServer(uvicorn.Server):
    """Announces itself when signals reach it, and ends the streams first when it is told to stop."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], Awaitable[None]] | None = None) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # Here, and not in the app's own start: what cannot be opened is said in one line, and nothing was announced.
        await self.config.app.state.holder.get()  # type: ignore[union-attr]
        if self._announce is not None:  # not before: Ctrl-C from who read it would meet a loop that is half made
            await self._announce()
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Streams have no end of their own; waiting for them would use up the time that the runs need.
        self.config.app.state.holder.end_streams()  # type: ignore[union-attr]
        await super().shutdown(sockets)


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

    GracefulServer(to_uvicorn(app), announce).run(sockets=[listening])


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
