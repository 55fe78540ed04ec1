"""What is new of flows, for the feed of all runs on Postgres: found in the index of flows, and not too often."""

import time
from collections.abc import Mapping

from holdfast.persistence.db import Database
from holdfast.persistence.event_feed import FlowMove, find_moved_flows, give_flow_positions, read_last_flow_time
from holdfast.runtime.clock import now
from holdfast.runtime.journal import Journal

_EVERY_S = 1.0  # lists are drawn less often
_MAX_SHARE = 0.1  # of the time; the index has no order by change, so a look is slower the more flows there are
_OVERLAP_S = 10.0  # a row's time is taken before its commit
_FAR_BACK_S = 120.0  # how far clocks may be apart, and how long a commit may take, without an event being told late


class FlowPositions:
    """Gives positions to what flows have written, up to its last look."""

    def __init__(self, db: Database, journal: Journal) -> None:
        self._db = db
        self._journal = journal
        self._heads: dict[str, int] = {}
        """Up to which number flows that may go on have been looked at."""
        self._looked_at: float | None = None
        self._may_look_at = 0.0
        self._has_news = False

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._heads

    def note_news(self) -> None:
        """Take note that another process has written something, perhaps of a flow."""
        self._has_news = True

    def wait_s(self) -> float:
        """Return in how many seconds there is something to look for."""
        return max(0.0, self._may_look_at - time.monotonic()) if self._has_news else float("inf")

    async def give(self, heads: Mapping[str, int]) -> None:
        """Give positions to what these flows have up to these numbers; other runs among them are left alone."""
        moves = {run_id: FlowMove(self._heads.get(run_id, 0), head) for run_id, head in heads.items()}
        moves = {run_id: move for run_id, move in moves.items() if move.head > move.after}
        if moves:
            await give_flow_positions(self._journal, moves)
            self._heads.update({run_id: move.head for run_id, move in moves.items() if run_id in self._heads})

    async def look(self) -> None:
        """Look at what has changed since the last time, if anything has and it is time."""
        if self._has_news and self.wait_s() == 0:
            await self._look(_OVERLAP_S)

    async def look_far_back(self) -> None:
        """Look at all that has changed since anybody has, and somewhat longer."""
        await self._look(_FAR_BACK_S)

    async def _look(self, overlap_s: float) -> None:
        self._has_news = False
        began, at = time.monotonic(), now()
        if self._looked_at is None:
            self._looked_at = await read_last_flow_time(self._db)
        found = await find_moved_flows(self._db, self._looked_at - overlap_s)
        if overlap_s == _FAR_BACK_S:
            self._heads = {run_id: seq for run_id, seq in self._heads.items() if run_id in found}
        new = {run_id: 0 for run_id in found if run_id not in self._heads}
        self._heads.update(new)
        await self.give(found)
        self._looked_at = at
        self._may_look_at = time.monotonic() + max(_EVERY_S, (time.monotonic() - began) / _MAX_SHARE)
