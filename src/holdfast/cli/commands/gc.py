"""The command gc: clean up after runs that are over."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.lazy import did_you_mean
from holdfast.cli.terminal.arguments import JSON
from holdfast.cli.terminal.cleanup import DRY_RUN, UNMERGED, run_cleanup, show_cleanup
from holdfast.enums import RunStatus
from holdfast.quantities import parse_duration, parse_size

if TYPE_CHECKING:
    from holdfast.config import Config
    from holdfast.engine.retention.cleanup import Cleanup, Tell
    from holdfast.persistence.db import Database

_STATES = tuple(status.value for status in RunStatus if status.is_terminal)


def collect(
    dry_run: DRY_RUN = False,
    runs: Annotated[
        bool, typer.Option("--runs", help="Delete the selected runs as a whole: journal, rows, refs, files, report.")
    ] = False,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="TIME", help="Select runs that ended so long ago: 12h, 30d.")
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Select runs that are completed, failed or cancelled."),
    ] = None,
    keep: Annotated[int, typer.Option("--keep", min=0, metavar="N", help="Leave the N newest runs alone.")] = 0,
    max_size: Annotated[
        str | None,
        typer.Option(
            "--max-size", metavar="SIZE", help="Stop when the data folder is no bigger than this: 500MB, 10GB."
        ),
    ] = None,
    unmerged: UNMERGED = False,
    as_json: JSON = False,
) -> None:
    """Clean up after runs that are over: worktrees, idle branches, command output, notes of agents.

    Without --runs every run stays: runs show, runs diff, merge and fork still work. With --runs the selected runs
    are deleted for good. Never touched are live and paused runs, unmerged results, runs that others were forked from,
    and folders that holdfast does not know.

    Example: holdfast gc --dry-run
    """
    selection = _to_selection(older_than, state, keep, max_size)
    if runs and older_than is None and not state and not keep and max_size is None:
        raise typer.BadParameter("Say which runs: --older-than, --state, --keep or --max-size.", param_hint="--runs")
    if unmerged and not runs:
        raise typer.BadParameter("It is about whole runs; say --runs too.", param_hint="--unmerged")

    async def work(db: "Database", config: "Config", tell: "Tell") -> "Cleanup":
        from datetime import UTC, datetime

        from holdfast.engine.retention.cleanup import clean_up

        options = {"deletes_runs": runs, "can_lose_unmerged": unmerged, "is_dry_run": dry_run}
        return await clean_up(db, config, selection, now=datetime.now(UTC), tell=tell, **options)

    show_cleanup(run_cleanup(work, is_dry_run=dry_run), is_json=as_json)


def _to_selection(older_than: str | None, state: list[str] | None, keep: int, max_size: str | None) -> Any:
    from datetime import timedelta

    from holdfast.engine.retention.selection import Selection

    for name in state or ():
        if name not in _STATES:
            hint = did_you_mean(name, list(_STATES)) or f" They are {', '.join(_STATES)}."
            raise typer.BadParameter(f"{name!r} is no state in which a run is over.{hint}", param_hint="--state")
    seconds = None if older_than is None else _parse("--older-than", parse_duration, older_than)
    return Selection(
        older_than=None if seconds is None else timedelta(seconds=seconds),
        states=frozenset(state or _STATES),
        keep=keep,
        max_bytes=None if max_size is None else _parse("--max-size", parse_size, max_size),
    )


def _parse(option: str, parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} should be {error}.", param_hint=option) from error
