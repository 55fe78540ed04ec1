"""Options and arguments that several commands share."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.completion import complete_runs

JSON = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
YES = Annotated[bool, typer.Option("--yes", help="Approve everything.")]
RUN_ID = Annotated[
    str,
    typer.Argument(metavar="RUN", help="A run's id, or the beginning of it.", autocompletion=complete_runs),
]
REPO = Annotated[Path, typer.Option("--repo", metavar="PATH", help="The repository whose .holdfast folder counts too.")]


def get_user() -> str:
    """Who is typing, as far as the machine knows."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def is_interactive() -> bool:
    """Whether a person can be asked something: what they read and what they type is a terminal."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))
