"""The commands about limits that hold for all processes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from holdfast.cli.agent_command import refuse_inside_agent_command
from holdfast.cli.terminal.arguments import JSON, get_user

if TYPE_CHECKING:
    from holdfast.config import Config
    from holdfast.persistence.db import Database

_T = TypeVar("_T")
KIND = Annotated[
    str, typer.Argument(metavar="KIND", help="runs, workflow, repository, user, provider, or day (in dollars).")
]
_NAME_HELP = "The workflow, repository, user or provider (a backend, or backend@host); none for runs and day."


def set_limit(
    kind: KIND,
    words: Annotated[list[str], typer.Argument(metavar="[NAME] AMOUNT", help=_NAME_HELP)],
    as_json: JSON = False,
) -> None:
    """Set a limit that holds for all processes on this database.

    Runs that have to wait for a place say so; a setting of one process that differs does not count. A limit for a
    backend is one of calls at a time to each of its servers; backend@host is one server.

    Example: holdfast limits set workflow release 2
    """
    from dataclasses import asdict

    from holdfast.cli.terminal.output import print_json, print_text
    from holdfast.errors import LimitInvalid
    from holdfast.fleet.limits import Limit
    from holdfast.fleet.limits import set_limit as put

    refuse_inside_agent_command("holdfast limits set")
    *names, amount_word = words
    try:
        amount = float(amount_word)
    except ValueError as error:
        raise LimitInvalid(f"{amount_word!r} is no number.", hint="Use KIND [NAME] AMOUNT.") from error
    limit = Limit(kind, " ".join(names), amount)
    stored = with_database(lambda db, _config: put(db, limit, by=get_user()))
    if as_json:
        print_json(asdict(stored))
    else:
        print_text(f"Limit: {stored.describe()}.")


def show_limits(as_json: JSON = False) -> None:
    """List the limits that hold for all processes.

    Example: holdfast limits list
    """
    from dataclasses import asdict

    from holdfast.cli.terminal.output import print_json, print_text, table
    from holdfast.config import load_config
    from holdfast.fleet.limits import find_differences, read_all
    from holdfast.quantities import format_number

    found = with_database(lambda db, _config: read_all(db))
    if as_json:
        print_json([asdict(limit) for limit in found])
        return
    if not found:
        print_text("There are no limits for all. Set one: holdfast limits set runs 10")
        return
    rows = [[limit.kind, limit.name, format_number(limit.amount), limit.set_by, limit.set_at] for limit in found]
    print_text(table(rows, headings=["KIND", "NAME", "LIMIT", "SET BY", "SET AT"]))
    for difference in find_differences(load_config(), found):
        print_text(f"! {difference}")


def remove(
    kind: KIND,
    name: Annotated[str, typer.Argument(metavar="[NAME]", help=_NAME_HELP)] = "",
    as_json: JSON = False,
) -> None:
    """Remove a limit.

    Example: holdfast limits remove workflow release
    """
    from holdfast.cli.terminal.output import print_json, print_text
    from holdfast.fleet.limits import remove_limit

    refuse_inside_agent_command("holdfast limits remove")
    with_database(lambda db, _config: remove_limit(db, kind, name))
    if as_json:
        print_json({"kind": kind, "name": name, "state": "removed"})
    else:
        print_text(f"The limit {f'{kind} {name}'.strip()} is removed.")


def with_database(work: "Callable[[Database, Config], Awaitable[_T]]") -> _T:
    """Open the configured database, brought up to date, and do this with it."""
    from holdfast.config import load_config
    from holdfast.persistence.db import Database

    async def run() -> _T:
        config = load_config()
        db = Database(config.database_url)
        try:
            await db.init_schema()
            return await work(db, config)
        finally:
            await db.dispose()

    return asyncio.run(run())
