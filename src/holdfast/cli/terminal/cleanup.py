"""A clean-up in front of a person, for gc and runs rm: its work, its progress and what it removed."""

import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.terminal.output import print_json, print_text, say, table
from holdfast.quantities import format_size

if TYPE_CHECKING:
    from holdfast.config import Config
    from holdfast.engine.retention.cleanup import Cleanup, Tell
    from holdfast.persistence.db import Database

    Work = Callable[[Database, Config, Tell], Coroutine[Any, Any, Cleanup]]

MANY = 20
_FEW = 3
UNRECORDED = "files that no phase recorded"
DRY_RUN = Annotated[bool, typer.Option("--dry-run", help="Only list what would go.")]
UNMERGED = Annotated[
    bool, typer.Option("--unmerged", help="Delete runs whose result is not merged too; it is lost then.")
]


def run_cleanup(work: "Work", *, is_dry_run: bool) -> "Cleanup":
    """Do the work on the configured database; where there is none yet, there is nothing to clean up."""
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


def show_cleanup(done: "Cleanup", *, is_json: bool) -> None:
    """Print what was cleaned up, or would be."""
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
    for item in done.skipped[:MANY]:
        print_text(f"Kept {item.run_id[:8]}: {item.reason.rstrip('.')}.")
    if len(done.skipped) > MANY:
        print_text(f"Kept {len(done.skipped) - MANY} more; --json lists them.")
    if any(item.reason.startswith("its result is not merged") for item in done.skipped):
        print_text("To delete an unmerged result, merge it first (holdfast merge RUN), or add --unmerged.")
    if any(UNRECORDED in item.reason for item in done.skipped):
        print_text("To look at such files: git show --stat REF. To delete them with the run, add --unmerged.")
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
    """Return a clean-up as `--json` prints it."""
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
