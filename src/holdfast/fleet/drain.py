"""What a worker that is to end waits for: calls in flight, for the grace time at most, or until somebody gives up."""

import asyncio
from collections.abc import Collection, Mapping

from holdfast.fleet.run_drive import Drive, WorkflowDrive

_LAST_S = 15.0  # for what is given up to let go of its run
_LAST_AT_ONCE_S = 3.0  # if nobody wants to wait for that either


class Drain:
    """Lets drives begin no more calls from now on, and waits for the ends of those that are in flight."""

    def __init__(self, drives: Mapping[str, Drive], *, grace_s: float, workflow_grace_s: float | None = None) -> None:
        self._grace_s = grace_s
        self._early_end = asyncio.Event()
        awaited = {run_id: drive for run_id, drive in list(drives.items()) if drive.drain()}
        self.run_ids = frozenset(awaited)
        """Runs with calls in flight."""
        has_flow = any(not isinstance(drive, WorkflowDrive) for drive in awaited.values())
        self._within_s = grace_s if has_flow or workflow_grace_s is None else workflow_grace_s

    @property
    def last_s(self) -> float:
        """For how long what is given up may take to let go."""
        return _LAST_AT_ONCE_S if self._early_end.is_set() else _LAST_S

    def give_up(self) -> None:
        """Wait no longer for calls in flight: their runs are given up, as at the end of the grace time."""
        self._early_end.set()

    def describe(self) -> str:
        """Say what is waited for, and for how long at most."""
        runs = len(self.run_ids)
        if not runs:
            return "Ends: no call is in flight."
        return (
            f"Ends after the calls in flight of {runs} {'run' if runs == 1 else 'runs'}, within {self._within_s:g} s."
        )

    async def wait(self, tasks: Collection["asyncio.Task[None]"]) -> None:
        """Wait until all of these have ended."""
        waits = [asyncio.create_task(self._early_end.wait()), asyncio.create_task(_wait_for_all(tasks))]
        await asyncio.wait(waits, timeout=self._grace_s, return_when=asyncio.FIRST_COMPLETED)
        for waiting in waits:
            waiting.cancel()


async def _wait_for_all(tasks: Collection["asyncio.Task[None]"]) -> None:
    await asyncio.wait(tasks)
