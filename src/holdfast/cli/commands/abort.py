"""The command abort: end a run for good.

What it made stays: journal, files and report. Unlike a paused run it cannot be resumed.
"""

from typing import Annotated

import typer

from holdfast.cli.commands.pause import stop_run
from holdfast.cli.terminal.arguments import JSON, RUN_ID
from holdfast.enums import RunStatus


def abort(
    run_id: RUN_ID,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="The reason; the report names it.")] = "",
    as_json: JSON = False,
) -> None:
    """End a run for good. What it made stays.

    What is in flight is recorded first, as with holdfast pause.

    Example: holdfast abort 3f2a --reason "wrong repository"
    """
    stop_run(run_id, "abort", RunStatus.CANCELLED, is_json=as_json, reason=reason)
