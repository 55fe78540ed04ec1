"""Looks at the runs of flows that somebody is to drive, and the beginning of those that nobody has begun.

Rule: what is asked for together is one statement. A look is a guess: what has changed since is not begun by it, and is
claimed and read like any other run.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from holdfast.errors import HoldfastError, StoreError
from holdfast.runtime import flow_line, flow_rows
from holdfast.runtime.checkpoint.base import Claim, Opening, prepare
from holdfast.runtime.coalescer import Coalescer
from holdfast.runtime.events import Event, EventKind, create_event
from holdfast.runtime.flow_rows import FlowLook
from holdfast.runtime.journal import Journal


class BegunFlow(NamedTuple):
    """A run that this process owns, of which it is recorded that it has begun."""

    claim: Claim
    events: Sequence[Event]
    """All of its journal."""


class FlowLooks:
    """Looks at runs, and begins them, for everyone in this process who asks for it at the same time."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._looking = Coalescer(self._look_all)
        self._beginning = Coalescer(self._begin_all, self._give_up)

    async def look(self, run_id: str) -> FlowLook | None:
        """Look at a run; `None` if it is no flow's."""
        return await self._looking(run_id)

    async def begin(self, look: FlowLook) -> BegunFlow | None:
        """Become the owner of a run that nobody has begun, and record that it begins; `None` if it is not so."""
        return await self._beginning(look) if look.created is not None else None

    async def settle(self) -> None:
        """Wait until nothing is under way."""
        await self._beginning.settle()

    async def _look_all(self, run_ids: list[str]) -> Sequence[FlowLook | None]:
        found = await self._journal.query(lambda store: flow_rows.read_looks(store, run_ids))
        return [found.get(run_id) for run_id in run_ids]

    async def _begin_all(self, looks: list[FlowLook]) -> Sequence[BegunFlow | None]:
        events = [create_event(look.row.run_id, EventKind.RUN_STARTED) for look in looks]
        openings = [
            Opening(look.row.run_id, look.epoch, look.created.seq, look.head_hash, prepare(event))
            for look, event in zip(looks, events, strict=True)
            if look.created is not None
        ]
        try:
            claims = await self._journal.query(lambda store: store.begin_many(openings))
        except StoreError:
            return [None] * len(looks)  # claiming them tells what is wrong, or waits until it is over
        return [self._adopt(*one) for one in zip(claims, looks, events, strict=True)]

    def _adopt(self, claim: Claim | None, look: FlowLook, started: Event) -> BegunFlow | None:
        if claim is None or look.created is None:
            return None
        self._journal.adopt(claim)
        return BegunFlow(claim, [look.created, replace(started, seq=claim.head)])

    async def _give_up(self, begun: BegunFlow | None) -> None:
        """Let another process take a run at once that nobody here waits for any more."""
        if begun is None:
            return
        try:
            rows = [flow_rows.abandoned(begun.claim.run_id)]
            await self._journal.append(begun.claim.run_id, [], claim=begun.claim, rows=rows)
        except HoldfastError:
            pass  # it is found as interrupted then
        finally:
            await self._journal.release(begun.claim)


async def call_up(journal: Journal) -> None:
    """Make those runs due that stood in line behind earlier ones of their schedule, and whose turn has come."""
    for run_id in await journal.query(flow_line.read_first_in_line):
        # crash: the run still stands in line, and the next look finds it.
        await journal.append(flow_line.LINE_JOURNAL, [], rows=[flow_line.called_up(run_id)])
