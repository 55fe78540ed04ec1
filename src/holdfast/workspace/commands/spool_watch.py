"""Watches a spooled command through the files of its folder, from any process, and ends it when asked."""

import asyncio
import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.workspace.commands.processes import ProcessIdentity, age_s, find_members, is_alive, send_signal
from holdfast.workspace.commands.spool_runner import LEASE_END, TERM_GRACE_S

# The runner keeps the time-out. Only if it does not (stopped, stuck) the engine does, this much later.
_BACKUP_S = TERM_GRACE_S + 5.0


@dataclass(frozen=True)
class Spooled:
    """A command that was started: its runner, and the leader of its session."""

    folder: Path
    runner: ProcessIdentity
    leader: ProcessIdentity
    timeout_s: float | None
    tag: str

    @property
    def end_path(self) -> Path:
        return self.folder / "rc.json"

    @property
    def members(self) -> list[int]:
        return find_members(self.leader, self.tag)

    @property
    def is_running(self) -> bool:
        # A runner that has recorded the end takes a moment more to end itself.
        return (is_alive(self.runner) and not self.end_path.exists()) or bool(self.members)

    @property
    def is_overdue(self) -> bool:
        age = age_s(self.leader)
        return self.timeout_s is not None and age is not None and age > self.timeout_s + _BACKUP_S


def read_spooled(folder: Path) -> Spooled | None:
    """Read the command of this folder, or `None` if none was started."""
    if not (folder / "pid.json").exists():
        return None
    started = json.loads((folder / "pid.json").read_text())
    command = json.loads((folder / "command.json").read_text())
    return Spooled(
        folder=folder,
        runner=ProcessIdentity(*started["runner"]),
        leader=ProcessIdentity(*started["leader"]),
        timeout_s=command["timeout_s"],
        tag=command["tag"],
    )


def find_end(spooled: Spooled) -> dict[str, Any] | None:
    """Find how a command has ended; nothing is known of one that ended with the lease of its run."""
    if (spooled.folder / LEASE_END).exists():
        return None
    path = spooled.end_path
    result: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return result


async def wait_for_end(spooled: Spooled) -> dict[str, Any] | None:
    """Wait for the end and return the runner's record of it; `None` if it died without one and the command ended."""
    while True:
        is_watched = is_alive(spooled.runner)
        result = find_end(spooled)  # after the look at the runner, which writes it before it ends
        if result is not None:
            if result["ended_by"]:
                await end_members(spooled)
            return result
        if spooled.is_overdue:
            return await _end_overdue(spooled)
        if is_watched:
            await _runner_end(spooled.runner)
        elif spooled.members:
            await asyncio.sleep(0.1)
        else:
            return None


async def _end_overdue(spooled: Spooled) -> dict[str, Any]:
    await end_members(spooled)
    return find_end(spooled) or {"exit_code": None, "ended_by": "timeout", "duration_s": age_s(spooled.leader)}


async def end_members(spooled: Spooled, *, grace_s: float = TERM_GRACE_S) -> None:
    """End every process of the command: politely, by force after a while. On return the runner has recorded it."""
    send_signal(spooled.members, signal.SIGTERM)
    if not await _ended(spooled, grace_s):
        send_signal(spooled.members, signal.SIGKILL)
        await _ended(spooled, TERM_GRACE_S)
    for _ in range(200):
        if find_end(spooled) is not None or not is_alive(spooled.runner):
            return
        await asyncio.sleep(0.02)


async def _ended(spooled: Spooled, seconds: float) -> bool:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while spooled.members:
        if loop.time() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True


async def _runner_end(runner: ProcessIdentity) -> None:
    """Wait until the runner ends, or a moment: the caller looks again either way."""
    try:
        number = os.pidfd_open(runner.pid)
    except (AttributeError, OSError):
        await asyncio.sleep(0.02)
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(number, ended.set)
    try:
        async with asyncio.timeout(2.0):
            await ended.wait()
    except TimeoutError:
        return
    finally:
        loop.remove_reader(number)
        os.close(number)
