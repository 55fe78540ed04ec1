"""What `serve` cleans up at night, if the settings say so: the same as `holdfast gc`, at a time of the day."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta

from holdfast.config import Config
from holdfast.engine.retention.cleanup import Cleanup, clean_up
from holdfast.engine.retention.selection import Selection
from holdfast.errors import CleanupBusy
from holdfast.persistence.db import Database

_LONGEST_SLEEP_S = 600.0  # so that a clock that was set, or a machine that slept, is noticed
_log = logging.getLogger("holdfast.api")


async def clean_every_night(db: Database, config: Config) -> None:
    """Clean up at `gc_at` of each day, until cancelled; return at once if that is not set."""
    if config.gc_at is None:
        return
    due = next_time(config.gc_at, datetime.now())  # noqa: DTZ005 - by the clock on the wall
    while True:
        left_s = (due - datetime.now()).total_seconds()  # noqa: DTZ005
        if left_s > 0:
            await asyncio.sleep(min(left_s, _LONGEST_SLEEP_S))
            continue
        due = next_time(config.gc_at, datetime.now())  # noqa: DTZ005
        try:
            await clean_tonight(db, config, now=datetime.now(UTC))
        except CleanupBusy:
            _log.info("Another process cleans up already")
        except Exception:
            _log.warning("The clean-up failed; it is tried again tomorrow", exc_info=True)


def next_time(time_of_day: str, now: datetime) -> datetime:
    """Return the next moment after `now` at which the clock shows this time."""
    hour, minute = (int(part) for part in time_of_day.split(":"))
    today = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return today if today > now else today + timedelta(days=1)


async def clean_tonight(db: Database, config: Config, *, now: datetime) -> list[Cleanup]:
    """Do what the settings ask for: files of runs that are over, then whole runs, then what is above the size."""
    done = [await clean_up(db, config, Selection(older_than=timedelta(seconds=config.gc_older_than)), now=now)]
    if config.gc_runs_older_than is not None:
        old = Selection(older_than=timedelta(seconds=config.gc_runs_older_than))
        done.append(await clean_up(db, config, old, now=now, deletes_runs=True))
    if config.gc_max_size is not None:
        done.append(await clean_up(db, config, Selection(max_bytes=config.gc_max_size), now=now))
    facts = {
        "freed_bytes": sum(each.size_bytes for each in done),
        "deleted_runs": sum(len(each.deleted_runs) for each in done),
        "kept": sum(len(each.skipped) for each in done),
    }
    _log.info("Cleaned up", extra=facts)
    return done
