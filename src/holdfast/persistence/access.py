"""Who may use the API: tokens, browser sessions, and the keys under which requests were already carried out.

Rule: a secret is never stored, only its hash; what changes who may do what is an event of the access journal.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, text

from holdfast.enums import Role
from holdfast.errors import NotAuthenticated, RowRefused, TokenNotFound
from holdfast.persistence.db import Database
from holdfast.persistence.models import IdempotencyRow, SessionRow, TokenRow
from holdfast.persistence.statements import insert, now_text, update
from holdfast.runtime.checkpoint.base import Statement
from holdfast.runtime.events import Event, EventKind, create_event
from holdfast.runtime.journal import Journal

ACCESS_JOURNAL = "holdfast-access"
_PREFIX = "hf"
_LINK = "link:"  # the row of a login link is named by a hash of this and its code; no cookie begins so
_NO_HASH = hashlib.sha256(b"").hexdigest()
# The ids of a token, of those that were made with it, and so on. UNION ends it even if rows went round in a circle.
_MADE_WITH = (
    "WITH RECURSIVE tree(id) AS (SELECT CAST(:id AS TEXT) "
    "UNION SELECT child.id FROM tokens AS child JOIN tree ON child.made_with = tree.id) SELECT id FROM tree"
)


def hash_secret(secret: str) -> str:
    """Hash a secret. A plain hash is enough: a secret of ours has 256 random bits, so there is nothing to guess."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


@dataclass(frozen=True)
class NewToken:
    """A token on the only occasion that it is known."""

    token_id: str
    token: str


async def create_token(
    journal: Journal,
    *,
    name: str,
    role: Role,
    expires_at: str | None = None,
    by: str = "",
    by_token_id: str | None = None,
) -> NewToken:
    """Make a token; it works from now on.

    With `by_token_id` it is made by whoever has that token. Raises `NotAuthenticated` if that one no longer works.
    """
    token_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    values = {
        "id": token_id,
        "name": name,
        "role": role.value,
        "hash": hash_secret(secret),
        "created_at": now_text(),
        "created_by": by,
        "made_with": by_token_id,
        "expires_at": expires_at,
    }
    origin: dict[str, Any] = {} if by_token_id is None else {"made_with": by_token_id}
    event = create_event(
        ACCESS_JOURNAL,
        EventKind.TOKEN_CREATED,
        token_id=token_id,
        name=name,
        role=role.value,
        expires_at=expires_at,
        by=by,
        **origin,
    )
    await _append_while_valid(journal, event, "tokens", values, by_token_id)
    return NewToken(token_id, f"{_PREFIX}_{token_id}_{secret}")


@dataclass(frozen=True)
class Revocation:
    """What one revocation took back; nothing if all of it was over already."""

    tokens: int
    sessions: int


async def revoke_token(
    db: Database, journal: Journal, token_id: str, *, by: str = "", keep_children: bool = False
) -> Revocation:
    """Take a token back, with the tokens that were made with it and theirs, and every session of them.

    All of them at once, in one append: whoever has one of these tokens cannot make another in between. With
    `keep_children` only the token itself and its sessions. Raises `TokenNotFound`; twice is once.
    """
    now = now_text()
    params = {"now": now, "by": by, "id": token_id}
    tree = "SELECT CAST(:id AS TEXT)" if keep_children else _MADE_WITH
    exists = Statement("UPDATE tokens SET revoked_by = revoked_by WHERE id = :id", {"id": token_id})
    revoked = Statement(
        f"UPDATE tokens SET revoked_at = :now, revoked_by = :by WHERE revoked_at IS NULL AND id IN ({tree})",  # noqa: S608 - text of ours
        params,
        expect=None,
    )
    ended = Statement(
        f"UPDATE sessions SET ended_at = :now WHERE ended_at IS NULL AND token_id IN ({tree})",  # noqa: S608 - text of ours
        {"now": now, "id": token_id},
        expect=None,
    )
    event = create_event(ACCESS_JOURNAL, EventKind.TOKEN_REVOKED, token_id=token_id, by=by, keep_children=keep_children)
    try:
        await journal.append(ACCESS_JOURNAL, [event], rows=[exists, revoked, ended])
    except RowRefused as error:
        raise TokenNotFound(f"There is no token {token_id}.") from error
    return await _count_revoked(db, token_id, now)


async def _count_revoked(db: Database, token_id: str, revoked_at: str) -> Revocation:
    """Count what a revocation took back, by its time."""
    params = {"id": token_id, "at": revoked_at}
    tokens = f"SELECT COUNT(*) FROM tokens WHERE revoked_at = :at AND id IN ({_MADE_WITH})"  # noqa: S608 - text of ours
    sessions = f"SELECT COUNT(*) FROM sessions WHERE ended_at = :at AND token_id IN ({_MADE_WITH})"  # noqa: S608 - text of ours
    async with db.session() as session:
        return Revocation(
            int(await session.scalar(text(tokens), params) or 0), int(await session.scalar(text(sessions), params) or 0)
        )


async def find_valid_token(db: Database, token: str) -> TokenRow | None:
    """Find the row of a token that is right, not revoked and not over; the secret is compared in constant time."""
    return (await find_valid_tokens(db, [token]))[0]


async def find_valid_tokens(db: Database, tokens: Sequence[str]) -> list[TokenRow | None]:
    """Find the row of each of these tokens, as `find_valid_token` does, in one query."""
    parts = [_split(token) for token in tokens]
    rows: dict[str, TokenRow] = {}
    if token_ids := {token_id for token_id, _secret in parts if token_id}:
        async with db.session() as session:
            rows = {row.id: row for row in await session.scalars(select(TokenRow).where(TokenRow.id.in_(token_ids)))}
    return [_check(rows.get(token_id), secret) for token_id, secret in parts]


def _split(token: str) -> tuple[str, str]:
    """Split a token into its id, empty if it can be none of ours, and its secret."""
    prefix, _, rest = token.partition("_")
    token_id, _, secret = rest.partition("_")
    is_ours = prefix == _PREFIX and token_id.isalnum() and token_id.isascii()
    return (token_id if is_ours else ""), secret


def _check(row: TokenRow | None, secret: str) -> TokenRow | None:
    is_right = hmac.compare_digest(hash_secret(secret), row.hash if row else _NO_HASH)
    return row if row is not None and is_right and _is_valid(row) else None


async def read_token_end(db: Database, token_id: str | None) -> str | None:
    """Read when a token ends; `None` if it has no end, or there is no token."""
    if token_id is None:
        return None
    async with db.session() as session:
        return await session.scalar(select(TokenRow.expires_at).where(TokenRow.id == token_id))


async def note_use(journal: Journal, token_id: str) -> None:
    row = update("tokens", {"last_used_at": now_text()}, {"id": token_id}, expect=None)
    await journal.append(ACCESS_JOURNAL, [], rows=[row])


async def list_tokens(db: Database) -> Sequence[TokenRow]:
    async with db.session() as session:
        return list(await session.scalars(select(TokenRow).order_by(TokenRow.created_at, TokenRow.id)))


async def open_session(journal: Journal, *, name: str, role: Role, expires_at: str, token_id: str | None = None) -> str:
    """Let a browser in and return the secret for its cookie, always a new one.

    Raises `NotAuthenticated` if the token that it logs in with no longer works.
    """
    secret = secrets.token_urlsafe(32)
    values = {
        "id": hash_secret(secret),
        "token_id": token_id,
        "name": name,
        "role": role.value,
        "created_at": now_text(),
        "expires_at": expires_at,
    }
    event = create_event(ACCESS_JOURNAL, EventKind.SESSION_OPENED, name=name, role=role.value, token_id=token_id)
    await _append_while_valid(journal, event, "sessions", values, token_id)
    return secret


async def open_link(journal: Journal, *, name: str, role: Role, expires_at: str) -> str:
    """Make a link that lets a browser in once, on any server of this database, and return its code."""
    code = secrets.token_urlsafe(32)
    times = {"created_at": now_text(), "expires_at": expires_at}
    row = insert("sessions", {"id": hash_secret(f"{_LINK}{code}"), "name": name, "role": role.value, **times})
    await journal.append(ACCESS_JOURNAL, [], rows=[row])
    return code


async def take_link(db: Database, journal: Journal, code: str) -> SessionRow | None:
    """Return whose link it is; the second time, and when its time is over, it is nobody's."""
    link_id = hash_secret(f"{_LINK}{code}")
    taken = Statement(
        "UPDATE sessions SET ended_at = :now WHERE id = :id AND ended_at IS NULL AND expires_at > :now",
        {"now": now_text(), "id": link_id},
    )
    async with db.session() as session:
        found = await session.get(SessionRow, link_id)
    if found is None:
        return None  # a guess writes nothing
    try:
        # crash: the link is used up and nobody is in: the next start of a server prints another.
        await journal.append(ACCESS_JOURNAL, [], rows=[taken])
    except RowRefused:
        return None
    return found


async def _append_while_valid(
    journal: Journal, event: Event, table: str, values: Mapping[str, str | None], token_id: str | None
) -> None:
    """Append an event with its row, both only if the token behind them works at that moment.

    Every change of tokens and sessions is an append to the one access journal, and appends to a journal come one after
    the other: a token that is revoked meanwhile is either seen here, or its revocation sees what was made here.
    """
    row = insert(table, dict(values))
    if token_id is not None:
        names = ", ".join(values)
        marks = ", ".join(f"CAST(:{name} AS TEXT)" for name in values)
        row = Statement(
            f"INSERT INTO {table} ({names}) SELECT {marks} FROM tokens AS maker WHERE maker.id = :maker_id "  # noqa: S608 - names of ours
            "AND maker.revoked_at IS NULL AND (maker.expires_at IS NULL OR maker.expires_at > :now)",
            {**values, "maker_id": token_id, "now": now_text()},
        )
    try:
        await journal.append(ACCESS_JOURNAL, [event], rows=[row])
    except RowRefused as error:
        raise NotAuthenticated("The token was revoked or is over.") from error


async def find_valid_session(db: Database, secret: str) -> SessionRow | None:
    """Find the session of a cookie; it is over with the token that it was opened with, whatever its own row says."""
    return (await find_valid_sessions(db, [secret]))[0]


async def find_valid_sessions(db: Database, cookies: Sequence[str]) -> list[SessionRow | None]:
    """Find the session of each of these cookies, as `find_valid_session` does, in one query."""
    hashes = ["" if cookie.startswith(_LINK) else hash_secret(cookie) for cookie in cookies]
    query = (
        select(SessionRow, TokenRow)
        .outerjoin(TokenRow, TokenRow.id == SessionRow.token_id)
        .where(SessionRow.id.in_(set(hashes)))
    )
    found: dict[str, SessionRow] = {}
    async with db.session() as session:
        for row, token in await session.execute(query):
            is_token_over = row.token_id is not None and (token is None or not _is_valid(token))
            if not is_token_over and row.ended_at is None and not _is_over(row.expires_at):
                found[row.id] = row
    return [found.get(hashed) for hashed in hashes]


async def end_session(journal: Journal, secret: str) -> None:
    """Log a browser out; one that is not logged in is left as it is."""
    row = update("sessions", {"ended_at": now_text()}, {"id": hash_secret(secret)}, expect=1)
    event = create_event(ACCESS_JOURNAL, EventKind.SESSION_ENDED)
    try:
        await journal.append(ACCESS_JOURNAL, [event], rows=[row])
    except RowRefused:
        return


async def find_answer(db: Database, actor: str, key: str) -> IdempotencyRow | None:
    async with db.session() as session:
        return await session.get(IdempotencyRow, (actor, key))


def remember_answer(actor: str, key: str, request_hash: str, run_id: str) -> Statement:
    """Return the statement that stores the key with the run; refused, with the run, if someone was faster."""
    values = {"actor": actor, "key": key, "request_hash": request_hash, "run_id": run_id, "created_at": now_text()}
    return insert("idempotency_keys", values)


async def prove_writable(journal: Journal) -> None:
    """Write a row that means nothing: a session of nobody, over before it began. Raises what any write would.

    What a table already holds would not do: a statement that changes nothing writes nothing.
    """
    now = now_text()
    row = Statement(
        "INSERT INTO sessions (id, name, role, created_at, expires_at, ended_at) "
        "VALUES ('probe', '', 'viewer', :now, :now, :now) ON CONFLICT (id) DO UPDATE SET ended_at = :now",
        {"now": now},
    )
    await journal.append(ACCESS_JOURNAL, [], rows=[row])


async def forget_old(journal: Journal, *, sessions_until: str, keys_until: str) -> None:
    """Delete sessions that were over, and keys that were used, before these times; may happen twice, anywhere."""
    over = Statement(
        "DELETE FROM sessions WHERE expires_at <= :until OR ended_at <= :until", {"until": sessions_until}, expect=None
    )
    used = Statement("DELETE FROM idempotency_keys WHERE created_at <= :until", {"until": keys_until}, expect=None)
    await journal.append(ACCESS_JOURNAL, [], rows=[over, used])


def _is_valid(token: TokenRow) -> bool:
    return token.revoked_at is None and not _is_over(token.expires_at)


def _is_over(expires_at: str | None) -> bool:
    return expires_at is not None and expires_at <= now_text()
