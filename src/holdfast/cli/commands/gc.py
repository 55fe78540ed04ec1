"""The commands that clean up: gc and runs rm."""

import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.lazy import did_you_mean
from holdfast.cli.terminal.arguments import JSON, find_run_id, is_interactive
from holdfast.cli.terminal.output import EXIT_DONE, EXIT_FAILED, print_json, print_text, say, table
from holdfast.enums import RunStatus
from holdfast.quantities import format_size, parse_duration, parse_size

if TYPE_CHECKING:
    from holdfast.config import Config
    from holdfast.engine.retention.cleanup import Cleanup, Tell
    from holdfast.persistence.db import Database

    Work = Callable[[Database, Config, Tell], Coroutine[Any, Any, Cleanup]]

_STATES = tuple(status.value for status in RunStatus if status.is_terminal)
_FEW, _MANY = 3, 20
_DRY_RUN = Annotated[bool, typer.Option("--dry-run", help="Only list what would go.")]
_UNMERGED = Annotated[
    bool, typer.Option("--unmerged", help="Delete runs whose result is not merged too; it is lost then.")
]


def collect(
    dry_run: _DRY_RUN = False,
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
    unmerged: _UNMERGED = False,
    as_json: JSON = False,
) -> None:
    """Clean up after runs that are over: worktrees, idle branches, command output, notes of agents.

    Without --runs every run stays: runs show, runs diff, merge and fork go on working. With --runs the selected runs
    themselves are deleted, for good. Live and paused runs, unmerged results, runs that others were forked from, and
    folders that holdfast does not know are never touched.

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

    _show(_do(work, is_dry_run=dry_run), is_json=as_json)


def remove(
    run_ids: Annotated[list[str], typer.Argument(metavar="RUN...", help="Ids of runs, or the beginnings of them.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    dry_run: _DRY_RUN = False,
    unmerged: _UNMERGED = False,
    as_json: JSON = False,
) -> None:
    """Delete runs for good: journal, rows, refs, worktree, report. Your own branches are not touched.

    Example: holdfast runs rm 3f2a --yes
    """
    full_ids = list(dict.fromkeys(find_run_id(run_id) for run_id in run_ids))
    if not yes and not dry_run and not _is_confirmed(full_ids):
        say("Nothing was deleted.")
        raise typer.Exit(EXIT_FAILED)

    async def work(db: "Database", config: "Config", tell: "Tell") -> "Cleanup":
        from datetime import UTC, datetime

        from holdfast.engine.retention.cleanup import remove_runs

        options = {"can_lose_unmerged": unmerged, "is_dry_run": dry_run}
        return await remove_runs(db, config, full_ids, now=datetime.now(UTC), tell=tell, **options)

    done = _do(work, is_dry_run=dry_run)
    _show(done, is_json=as_json)
    raise typer.Exit(EXIT_DONE if set(full_ids) <= set(done.deleted_runs) else EXIT_FAILED)


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


def _is_confirmed(run_ids: list[str]) -> bool:
    if not is_interactive():
        raise typer.BadParameter("Deleting a run cannot be undone; say --yes to do it unasked.", param_hint="--yes")
    many = "this run" if len(run_ids) == 1 else f"these {len(run_ids)} runs"
    say("\n".join(f"  {run_id}" for run_id in run_ids[:_MANY]))
    sys.stderr.write(f"Delete {many} for good? [y/N] ")
    sys.stderr.flush()
    answer = sys.stdin.readline()  # empty at the end of the input, which is no yes
    if not answer.endswith("\n"):
        say()
    return answer.strip().lower() in ("y", "yes")


def _do(work: "Work", *, is_dry_run: bool) -> "Cleanup":
    import asyncio

    from holdfast.config import load_config
    from holdfast.engine.retention.cleanup import Cleanup
    from holdfast.persistence.db import Database

    async def do() -> Cleanup:
        config = load_config()
        if config.database_path is not None and not config.database_path.exists():
            return Cleanup(is_dry_run)
        db = Database(config.database_url, connections=config.database_connections)
        try:
            await db.init_schema()
            return await work(db, config, _tell)
        finally:
            await db.dispose()

    try:
        return asyncio.run(do())
    except KeyboardInterrupt:
        say("\nStopped. Every run is there as a whole or gone; the same command goes on where this ended.")
        raise typer.Exit(130) from None
    finally:
        _tell("")


def _tell(text: str) -> None:
    """Show one line to a person at a terminal, in the place of the last one; print nothing elsewhere."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def _show(done: "Cleanup", *, is_json: bool) -> None:
    if is_json:
        print_json(to_json(done))
        return
    if done.items:
        print_text(table(_to_rows(done), headings=["WHAT", "COUNT", "SIZE"]))
        print_text(f"\n{'Would free' if done.is_dry_run else 'Freed'} about {format_size(done.size_bytes)}.")
    else:
        print_text("Nothing to clean up.")
    if database := done.database:
        sizes = f"{format_size(database.before_bytes)} before, {format_size(database.after_bytes)} now"
        print_text(f"Database file: {sizes}.{f' Not smaller: {database.reason}.' if database.reason else ''}")
    for ref in done.rescue_refs[:_FEW]:
        print_text(f"Files that no phase had recorded are kept under {ref}.")
    if len(done.rescue_refs) > _FEW:
        print_text(f"So are those of {len(done.rescue_refs) - _FEW} more; --json lists them.")
    for item in done.skipped[:_MANY]:
        print_text(f"Kept {item.run_id[:8]}: {item.reason.rstrip('.')}.")
    if len(done.skipped) > _MANY:
        print_text(f"Kept {len(done.skipped) - _MANY} more; --json lists them.")
    if not done.is_dry_run and any(item.reason.startswith("its result is not merged") for item in done.skipped):
        print_text("To delete an unmerged result, merge it first (holdfast merge RUN), or add --unmerged.")
    for note in done.notes:
        print_text(note)
    if done.is_dry_run and done.items:
        print_text("Nothing was changed: this was a dry run.")


def _to_rows(done: "Cleanup") -> list[Any]:
    kinds = dict.fromkeys(item.kind for item in done.items)
    rows = []
    for kind in kinds:
        items = [item for item in done.items if item.kind is kind]
        rows.append([kind.value, str(len(items)), format_size(sum(item.size_bytes for item in items))])
    return rows


def to_json(done: "Cleanup") -> dict[str, Any]:
    database = done.database
    return {
        "dry_run": done.is_dry_run,
        "bytes": done.size_bytes,
        "items": [
            {"kind": item.kind.value, "run_id": item.run_id, "path": item.path, "bytes": item.size_bytes}
            for item in done.items
        ],
        "skipped": [{"run_id": item.run_id, "reason": item.reason} for item in done.skipped],
        "rescue_refs": done.rescue_refs,
        "notes": done.notes,
        "database": database
        and {"before": database.before_bytes, "after": database.after_bytes, "reason": database.reason},
    }
