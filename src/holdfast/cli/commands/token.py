"""The commands token create, list and revoke: who may use the API."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from holdfast.presentation.format import moment

if TYPE_CHECKING:
    from holdfast.persistence.access import Revocation
    from holdfast.persistence.db import Database
    from holdfast.runtime.journal import Journal

JSON = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
_T = TypeVar("_T")


def create(
    name: Annotated[str, typer.Option("--name", help="Who or what it is for; the journal shows it.")],
    role: Annotated[str, typer.Option("--role", help="viewer, operator, approver or admin.")] = "viewer",
    days: Annotated[float | None, typer.Option("--days", help="How many days it works; by default for ever.")] = None,
    as_json: JSON = False,
) -> None:
    """Create a token and print it. It is not shown again.

    Example: holdfast token create --name ci --role operator --days 90
    """
    from holdfast.cli.terminal.output import print_json
    from holdfast.enums import Role

    if role not in list(Role):
        raise typer.BadParameter(f"{role!r} is no role. Use one of {', '.join(Role)}.", param_hint="--role")
    if not name.strip() or not name.isprintable() or len(name) > 200:
        raise typer.BadParameter("A token's name is 1 to 200 printable characters.", param_hint="--name")
    if days is not None and not 0 < days <= 3650:
        raise typer.BadParameter("A token works for up to 3650 days.", param_hint="--days")
    token_id, text = _with_journal(lambda _db, journal: _create(journal, name, role, days))
    if as_json:
        print_json({"id": token_id, "token": text})
    else:
        typer.echo(text)
        typer.echo(f"Token {token_id} for {name!r} as {role}. It is not stored and cannot be shown again.", err=True)


async def _create(journal: "Journal", name: str, role: str, days: float | None) -> tuple[str, str]:
    from datetime import UTC, datetime, timedelta

    from holdfast.cli.terminal.arguments import get_user
    from holdfast.enums import Role
    from holdfast.persistence.access import create_token
    from holdfast.persistence.statements import to_time_text

    expires_at = None if days is None else to_time_text(datetime.now(UTC) + timedelta(days=days))
    new = await create_token(journal, name=name, role=Role(role), expires_at=expires_at, by=get_user())
    return new.token_id, new.token


def list_all(as_json: JSON = False) -> None:
    """List tokens, revoked ones too.

    Example: holdfast token list
    """
    from holdfast.cli.terminal.output import print_json, table
    from holdfast.persistence.raw_sql import read_tokens

    found = read_tokens()
    if as_json:
        print_json(found)
        return
    if not found:
        typer.echo("There are no tokens. Make one: holdfast token create --name NAME --role ROLE")
        return
    rows = [[row["id"], row["name"], row["role"], _last_use(row), _standing(row)] for row in found]
    typer.echo(table(rows, headings=["ID", "NAME", "ROLE", "LAST USE", "STANDING"]))


def _last_use(row: dict[str, str | None]) -> str:
    return moment(row["last_used_at"]) if row["last_used_at"] else "never used"


def _standing(row: dict[str, str | None]) -> str:
    if row["revoked_at"]:
        return f"revoked by {row['revoked_by'] or 'someone'}"
    return f"until {moment(row['expires_at'])}" if row["expires_at"] else "no end"


def revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="The id that `token list` shows.")],
    keep_children: Annotated[
        bool, typer.Option("--keep-children", help="Leave the tokens that were made with it as they are.")
    ] = False,
    as_json: JSON = False,
) -> None:
    """Revoke a token. It stops working at once, with the tokens that were made with it, theirs, and all their logins.

    Example: holdfast token revoke 4be1c90a77f2
    """
    from holdfast.cli.terminal.arguments import get_user
    from holdfast.cli.terminal.output import print_json
    from holdfast.persistence.access import revoke_token

    done = _with_journal(
        lambda db, journal: revoke_token(db, journal, token_id, by=get_user(), keep_children=keep_children)
    )
    if as_json:
        print_json({"id": token_id, "state": "revoked", "tokens": done.tokens, "sessions": done.sessions})
    else:
        typer.echo(f"Token {token_id} is revoked. {_count_others(done)}".strip())


def _count_others(done: "Revocation") -> str:
    others = done.tokens - 1
    parts = [f"{others} {'token' if others == 1 else 'tokens'} made with it"] if others > 0 else []
    if done.sessions:
        parts.append(f"{done.sessions} {'login' if done.sessions == 1 else 'logins'}")
    return f"With it ended: {', '.join(parts)}." if parts else ""


def _with_journal(work: "Callable[[Database, Journal], Awaitable[_T]]") -> _T:
    async def run() -> _T:
        async with _opened() as (db, journal):
            return await work(db, journal)

    return asyncio.run(run())


@contextlib.asynccontextmanager
async def _opened() -> AsyncIterator[tuple["Database", "Journal"]]:
    from holdfast.config import load_config
    from holdfast.persistence.db import Database
    from holdfast.runtime.stores import open_journal

    db = Database(load_config().database_url)
    try:
        await db.init_schema()
        async with open_journal(db.store) as journal:
            yield db, journal
    finally:
        await db.dispose()
