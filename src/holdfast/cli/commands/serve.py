"""The command serve: the API and the pages, and a process that drives runs."""

import sys
from typing import Annotated

import typer

from holdfast.cli.terminal.arguments import STORE
from holdfast.errors import ConfigInvalid

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def serve(
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="The port to listen on; 0 takes a free one.")
    ] = 8000,
    allow_host: Annotated[
        list[str] | None, typer.Option("--allow-host", help="A name that browsers may use for this server.")
    ] = None,
    no_auth: Annotated[bool, typer.Option("--no-auth", help="Let everybody in; only on this machine.")] = False,
    flows: Annotated[
        list[str] | None,
        typer.Option("--flows", metavar="MODULE", help="Drive the flows of this module, or file that ends in .py."),
    ] = None,
    no_drive: Annotated[
        bool, typer.Option("--no-drive", help="Drive no runs: holdfast worker does, on this machine or others.")
    ] = False,
    grace: Annotated[
        float, typer.Option("--grace", min=0, help="Seconds that calls in flight have to end when it is stopped.")
    ] = 0.3,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open a browser.")] = False,
    _store: STORE = None,
) -> None:
    """Serve the API and the web pages, and drive runs.

    With --flows it recovers, wakes and drives the flows of your modules too. With --store it serves the store that
    programs write their flows to.

    Example: holdfast serve --port 8000
    """
    import logging

    from holdfast.api.options import ServerOptions
    from holdfast.api.serve import run_server
    from holdfast.cli.log_output import show_log
    from holdfast.config import load_config

    show_log(is_json=False, level=logging.WARNING)  # what goes wrong in a server is told unasked
    if no_auth and host not in _LOOPBACK:
        raise ConfigInvalid(
            "--no-auth is only for 127.0.0.1, ::1 and localhost.",
            hint="Leave it out; holdfast token create makes tokens.",
            key="--no-auth",
        )
    if no_auth:
        typer.echo("WARNING: --no-auth: every program and every user of this machine can do everything here.", err=True)
    run_server(
        host,
        port,
        config=load_config(flows=flows or None),
        options=ServerOptions(
            has_auth=not no_auth,
            allowed_hosts=frozenset(allow_host or ()),
            drives_runs=not no_drive,
            grace_s=grace,
        ),
        opens_browser=not no_browser and sys.stdin.isatty() and sys.stdout.isatty(),
        say=lambda text: typer.echo(text),
    )
