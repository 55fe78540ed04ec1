"""The commands about the database: upgrade, check and backup."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli.terminal.arguments import JSON
from holdfast.cli.terminal.output import print_json, print_text


def upgrade(as_json: JSON = False) -> None:
    """Create the database, or bring it up to date. Safe to repeat.

    Example: holdfast db upgrade
    """
    from holdfast.persistence.migrations import HEAD

    _with_database(_nothing)
    if as_json:
        print_json({"schema": HEAD})
    else:
        print_text(f"✓ the database has schema {HEAD}")


def check(as_json: JSON = False) -> None:
    """Compare every row with the journal and report those that disagree. Exit code 1 if one does.

    Example: holdfast db check
    """
    from holdfast.engine.audit import check_database

    found = _with_database(check_database)
    if as_json:
        print_json([vars(item) for item in found])
    else:
        for item in found:
            print_text(f"✕ {item}")
        if not found:
            print_text("✓ rows and journals agree")
    raise typer.Exit(1 if found else 0)


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the copy goes; it must not be there yet.")],
    as_json: JSON = False,
) -> None:
    """Copy the database while it is in use. The copy is one consistent moment of it.

    Example: holdfast db backup before-upgrade.db
    """
    from holdfast.config import load_config
    from holdfast.errors import ConfigInvalid

    source = load_config().database_path
    if source is None:
        raise ConfigInvalid("This copies SQLite databases.", hint="Use pg_dump for Postgres.", key="database_url")
    if file.exists():
        raise ConfigInvalid(f"{file} is there already.", hint="Name another file.", key="FILE")
    if not source.exists():
        raise ConfigInvalid(f"There is no database {source} yet.", hint="Make one: holdfast db upgrade", key="data_dir")
    _copy(source, file)
    facts = {"file": str(file.absolute()), "bytes": file.stat().st_size}
    if as_json:
        print_json(facts)
    else:
        print_text(f"✓ {facts['file']} ({facts['bytes']:,} bytes). To go back, put it in the place of {source}.")


def _copy(source: Path, target: Path) -> None:
    import os
    import sqlite3

    from holdfast.runtime.checkpoint.private_files import make_private_database

    passing = target.with_name(f".{target.name}.{os.getpid()}")
    make_private_database(str(passing))
    try:
        # crash: an unfinished copy has another name, so what has the asked-for name is whole.
        with sqlite3.connect(source) as live, sqlite3.connect(passing) as copy:
            live.backup(copy)
        live.close()
        copy.close()
        passing.rename(target)
    finally:
        passing.unlink(missing_ok=True)


async def _nothing(_database: Any) -> None:
    pass


def _with_database(work: Callable[[Any], Awaitable[Any]]) -> Any:
    import asyncio

    from holdfast.config import load_config
    from holdfast.persistence.db import Database

    async def do() -> Any:
        database = Database(load_config().database_url)
        try:
            await database.init_schema()
            return await work(database)
        finally:
            await database.dispose()

    return asyncio.run(do())
