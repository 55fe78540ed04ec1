"""The command verify: whether an exported file, or a run of the database, is what was recorded."""

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.terminal.arguments import JSON, STORE, find_run_id
from holdfast.cli.terminal.output import print_json, print_text


def verify(
    target: Annotated[str, typer.Argument(metavar="FILE|RUN", help="A file of holdfast export, or a run's id.")],
    as_json: JSON = False,
    store: STORE = None,
) -> None:
    """Check that an exported file, or a run of the database, is as it was recorded. Exit code 1 if it is not.

    A file is checked by itself, without a database. Compare the digest with the one that holdfast export printed: it
    tells this file from one that somebody else made.

    Example: holdfast verify review.zip
    """
    if Path(target).exists() or target.endswith(".zip"):
        from holdfast.engine.bundle import check_bundle

        bundle = check_bundle(Path(target))
        if as_json:
            print_json({"ok": True, **bundle.to_dict()})
        else:
            print_text(f"✓ run {bundle.run_id}: {bundle.state}, {bundle.events} events, nothing was changed")
            print_text(f"  digest {bundle.digest}")
        return
    problems = _check_stored(full_id := find_run_id(target))
    if as_json:
        print_json({"ok": not problems, "run_id": full_id, "problems": problems})
    elif problems:
        print_text("\n".join(f"✕ {problem}" for problem in problems))
    else:
        print_text(f"✓ run {full_id}: its journal is whole, and its rows agree with it")
    raise typer.Exit(1 if problems else 0)


def _check_stored(run_id: str) -> list[str]:
    import asyncio

    from holdfast.cli.terminal.store import open_configured_store
    from holdfast.config import load_config
    from holdfast.errors import JournalCorrupt
    from holdfast.persistence.flow_listings import find_flow_run

    if find_flow_run(run_id):
        store = open_configured_store()
        try:
            store.list_events(run_id)
        except JournalCorrupt as error:
            return [error.message]
        finally:
            store.close()
        return []
    from holdfast.engine.audit import check_run
    from holdfast.persistence.db import Database

    async def check() -> list[str]:
        database = Database(load_config().database_url)
        try:
            return [str(item) for item in await check_run(database, run_id)]
        finally:
            await database.dispose()

    return asyncio.run(check())
