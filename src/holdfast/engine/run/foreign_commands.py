"""Commands that this machine still runs for runs that have left it: ended when a process starts here.

A command that goes on while its run goes on elsewhere works on files that nobody will look at, or is paid for twice. A
process that hears of the loss while it drives ends them by itself (`run_owner.py`); this is for one that was dead.
"""

import asyncio
from pathlib import Path

from holdfast.persistence.db import Database
from holdfast.persistence.listings import list_elsewhere
from holdfast.workspace import find_commands, find_place, stop_command


async def stop_foreign_commands(db: Database, spool_dir: Path) -> list[str]:
    """End what an earlier process left running here of runs that have left this place; return the commands' keys."""
    running = await asyncio.to_thread(find_commands, spool_dir)
    place = await asyncio.to_thread(find_place, spool_dir.parent)
    foreign = await list_elsewhere(db, set(map(_run_of, running)), place.data) if running else set()
    keys = sorted(key for key in running if _run_of(key) in foreign)
    # Another process of this place may have the run back by now, and run the same command again.
    await asyncio.gather(*(stop_command(running[key]) for key in keys))
    return keys


def _run_of(key: str) -> str:
    return key.partition(":")[0].replace("%3A", ":").replace("%25", "%")
