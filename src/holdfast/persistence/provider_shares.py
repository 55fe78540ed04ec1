"""How processes share a limit of calls to a provider, and what a provider has asked all of them to wait.

Rule: what a process may have under way is its share. Its row holds that, or what is under way if that is more; no share
is larger than what the rows of the others leave, so that together the calls that begin never pass the limit. What
cannot be divided is for those whose calls have waited longest, so that none is left out, however long calls take. A
process that gives no sign of life for as long as a lease has no row. A time that lies further ahead than any can was
written by a clock that was wrong, and counts for nothing once that is set right.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from holdfast.persistence.admission import PROVIDER_LIMIT, clock_of
from holdfast.persistence.db import Database
from holdfast.persistence.statements import to_time_text

LEASE_S = 6.0
MAX_HOLD_S = 120.0  # of what a provider may ask for; a longer one is met again by the next call
_LOCK = 0x7368617265  # "share"


@dataclass(frozen=True)
class ProviderTerms:
    """What holds for a process's calls to a provider now."""

    share: int | None
    """With how many under way it may begin no more; `None` if no limit was set for all."""
    hold_s: float
    """How long the provider has asked to be left alone."""
    limit: int | None = None
    """What all processes together may have under way."""


async def take_share(
    db: Database, provider: str, holder: str, *, under_way: int, waited_s: float | None = None
) -> ProviderTerms:
    """Take as much of a provider's limit as is fair and free, and give back the rest once it is not under way.

    `waited_s` says for how long calls have waited since the last one began; `None` if another place would not help.
    """
    async with db.session() as session:
        limit, now, hold_s = await _read_terms(db, session, provider)
        if limit is None:
            return ProviderTerms(None, hold_s)
        await session.rollback()
        if db.path is None:
            await session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        params: dict[str, Any] = {"provider": provider, "holder": holder}
        params |= {"over": to_time_text(now - timedelta(seconds=LEASE_S)), "now": to_time_text(now)}
        await session.execute(text("DELETE FROM provider_shares WHERE seen_at < :over"), params)  # locks SQLite
        # A process that still lives shows it within a lease from now on; one that was killed does not.
        later = {**params, "later": to_time_text(now + timedelta(seconds=LEASE_S))}
        await session.execute(text("UPDATE provider_shares SET seen_at = :now WHERE seen_at > :later"), later)
        query = (
            "SELECT holder, share, waits_since FROM provider_shares WHERE provider = :provider AND holder <> :holder"
        )
        others = list(await session.execute(text(query), params))
        waits_since = None if waited_s is None else to_time_text(now - timedelta(seconds=waited_s))
        ahead = sum(_order(row.waits_since, row.holder) < _order(waits_since, holder) for row in others)
        part, rest = divmod(limit, len(others) + 1)
        share = max(0, min(part + (ahead < rest), limit - sum(int(row.share) for row in others)))
        await session.execute(
            text(
                "INSERT INTO provider_shares (provider, holder, share, seen_at, waits_since) "
                "VALUES (:provider, :holder, :share, :now, :waits_since) "
                "ON CONFLICT (provider, holder) DO UPDATE "
                "SET share = excluded.share, seen_at = excluded.seen_at, waits_since = excluded.waits_since"
            ),
            {**params, "share": max(share, under_way), "waits_since": waits_since},
        )
        await session.commit()
        return ProviderTerms(share, hold_s, limit)


def _order(waits_since: str | None, holder: str) -> tuple[bool, str, str]:
    """Return what processes are ordered by: who waits comes first, the longest of all before the others."""
    return waits_since is None, waits_since or "", holder


async def _read_terms(db: Database, session: AsyncSession, provider: str) -> tuple[int | None, datetime, float]:
    query = text(
        f"SELECT {clock_of(db).text} AS now, "  # noqa: S608 - ours
        "(SELECT MAX(hold_until) FROM provider_holds WHERE provider = :provider) AS hold_until, "
        "(SELECT amount FROM limits WHERE kind = :kind AND name = :provider) AS own, "
        "(SELECT amount FROM limits WHERE kind = :kind AND name = :backend) AS of_backend"
    )
    params = {"provider": provider, "kind": PROVIDER_LIMIT, "backend": provider.partition("@")[0]}
    row = (await session.execute(query, params)).one()
    now = datetime.fromisoformat(row.now)
    hold_s = (datetime.fromisoformat(row.hold_until) - now).total_seconds() if row.hold_until else 0.0
    limit = row.own if row.own is not None else row.of_backend
    return None if limit is None else int(limit), now, hold_s if 0.0 < hold_s <= MAX_HOLD_S else 0.0


async def drop_share(db: Database, provider: str, holder: str) -> None:
    """Give a share back: nothing is under way."""
    async with db.session() as session:
        query = text("DELETE FROM provider_shares WHERE provider = :provider AND holder = :holder")
        await session.execute(query, {"provider": provider, "holder": holder})
        await session.commit()


async def hold_provider(db: Database, provider: str, seconds: float) -> None:
    """Let no process call a provider for a while, two minutes at most; a longer hold stays."""
    async with db.session() as session:
        _, now, _ = await _read_terms(db, session, provider)
        await session.rollback()
        query = text(
            "INSERT INTO provider_holds (provider, hold_until) VALUES (:provider, :until) "
            "ON CONFLICT (provider) DO UPDATE SET hold_until = excluded.hold_until "
            "WHERE provider_holds.hold_until < excluded.hold_until OR provider_holds.hold_until > :latest"
        )
        until, latest = (now + timedelta(seconds=each) for each in (min(seconds, MAX_HOLD_S), MAX_HOLD_S))
        times = {"until": to_time_text(until), "latest": to_time_text(latest)}
        await session.execute(query, {"provider": provider, **times})
        await session.commit()
