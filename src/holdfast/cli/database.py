"""The commands about the database: upgrade and check."""

import asyncio
from typing import Any

import typer

from holdfast.cli.output import print_json
from holdfast.cli.running import JSON

db = typer.Typer(name="db", help="Look after the database.", no_args_is_help=True, rich_markup_mode=None)


@db.command("upgrade")
def upgrade(as_json: JSON = False) -> None:
    """Make the database, or bring it up to date. Safe to repeat.

    Example: holdfast db upgrade
    """
    from holdfast.persistence.schema import HEAD

    asyncio.run(_with_database(lambda database: None))
    if as_json:
        print_json({"schema": HEAD})
    else:
        typer.echo(f"✓ the database has schema {HEAD}")


@db.command("check")
def check(as_json: JSON = False) -> None:
    """Fold every run's journal and report each row that disagrees with it; exit code 1 if one does.

    Example: holdfast db check
    """
    from holdfast.engine.check import check_database

    found = asyncio.run(_with_database(check_database))
    if as_json:
        print_json([vars(item) for item in found])
    else:
        for item in found:
            typer.echo(f"✕ {item}")
        if not found:
            typer.echo("✓ rows and journals agree")
    raise typer.Exit(1 if found else 0)


async def _with_database(work: Any) -> Any:
    from holdfast.config import load_config
    from holdfast.persistence.db import Database

    database = Database(load_config().database_url)
    try:
        await database.init_schema()
        result = work(database)
        return await result if result is not None else None
    finally:
        await database.dispose()
