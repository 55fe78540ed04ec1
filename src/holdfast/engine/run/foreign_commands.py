"""Commands that this machine still runs for runs that have left it: ended by the process that starts here.

A command that goes on while its run goes on elsewhere works on files that nobody will look at, or is paid for twice. A
process that hears of the loss while it drives ends them by itself (`run_owner.py`); this is for one that was dead.
Until its lease is over the dead one still has the run, so that one look is not enough.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from holdfast.persistence.db import Database
from holdfast.persistence.listings import list_elsewhere
from holdfast.workspace import find_commands, find_place, stop_command

_LOOK_S = 1.0  # until what an earlier process left running here is looked at again
_log = logging.getLogger("holdfast.engine")


class CommandLook(NamedTuple):
    """What a look at the commands of a place has found."""

    stopped: Sequence[str]
    """The keys of those that were ended."""
    is_over: bool
    """Nothing runs here any more. What the caller has in hand counts too: it may only look at the run."""


async def end_foreign_commands(db: Database, spool_dir: Path, driven: Collection[str]) -> None:
    """End what is left here of runs that others have; look until nothing is, as they take them over only later."""
    is_over = has_failed = False
    while not is_over:
        try:
            is_over = (await stop_foreign_commands(db, spool_dir, driven=set(driven))).is_over
        except Exception:
            if not has_failed:  # not at every look of an outage
                _log.warning("Commands of runs that another machine has could not be ended yet", exc_info=True)
            has_failed = True
        if not is_over:
            await asyncio.sleep(_LOOK_S)


async def stop_foreign_commands(db: Database, spool_dir: Path, *, driven: Collection[str] = ()) -> CommandLook:
    """End what an earlier process left running here of runs that have left this place; not of those `driven` here."""
    found = await asyncio.to_thread(find_commands, spool_dir)
    running = {key: command for key, command in found.items() if _run_of(key) not in driven}
    if not running:
        return CommandLook([], is_over=not found)
    place = await asyncio.to_thread(find_place, spool_dir.parent)
    foreign = await list_elsewhere(db, set(map(_run_of, running)), place.data)
    keys = sorted(key for key in running if _run_of(key) in foreign)
    # Another process of this place may have the run back by now, and run the same command again.
    await asyncio.gather(*(stop_command(running[key]) for key in keys))
    return CommandLook(keys, is_over=len(keys) == len(found))


def _run_of(key: str) -> str:
    return key.partition(":")[0].replace("%3A", ":").replace("%25", "%")
