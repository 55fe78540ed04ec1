"""Forgetting what has had its time: sessions that are over, keys that nobody sends again."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta

from holdfast.api.options import ServerOptions
from holdfast.persistence.access import forget_old
from holdfast.persistence.statements import to_time_text
from holdfast.runtime.journal import Journal

_log = logging.getLogger("holdfast.api")


async def clean_for_ever(journal: Journal, options: ServerOptions) -> None:
    """Clean up now and every so often, until cancelled. Servers on one database may all do so."""
    while True:
        try:
            await clean(journal, options, now=datetime.now(UTC))
        except Exception:
            _log.warning("Old sessions and keys could not be deleted; it is tried again", exc_info=True)
        await asyncio.sleep(options.clean_every_s)


async def clean(journal: Journal, options: ServerOptions, *, now: datetime) -> None:
    await forget_old(
        journal,
        sessions_until=to_time_text(now),
        keys_until=to_time_text(now - timedelta(days=options.idempotency_days)),
    )
