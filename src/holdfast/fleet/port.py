"""What a queue of runs has to be able to do, whichever engine is behind it.

Rule: rows say what is due, the claim says who has it, a queue only says "look at run X". It owns nothing and retries
nothing; a job that is lost, doubled or late costs seconds.
"""

import asyncio
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from holdfast.engine.run.job import JobWriter
from holdfast.persistence.due.beat import DueJob


class RunTaker(Protocol):
    """Whoever drives runs here."""

    def take(self, run_id: str) -> "asyncio.Task[None] | None":
        """Begin to drive a run, if it is due and can be driven; `None` if there is no place, or it is in hand."""
        ...

    async def wait_for_place(self) -> int:
        """Wait until there is a place for a run; returns how many there are."""
        ...

    def list_passed_over(self) -> Set[str]:
        """List the runs that it need not be told of now: it drives them, or tries them again later."""
        ...


@dataclass(frozen=True)
class QueueDescription:
    """What a queue is, for people."""

    engine: str
    is_shared: bool
    """Other processes bring runs into it, and take them out."""
    parts: Sequence[str] = ()
    """The names in the database without which it does not work."""


class Queue(JobWriter, Protocol):
    """Brings runs to a taker."""

    async def enqueue(self, jobs: Sequence[DueJob]) -> None:
        """Bring these to somebody soon; those that wait already are left as they are."""
        ...

    async def repair(self) -> None:
        """Make what the queue needs anew if any of it is lost; many processes may do so at once."""
        ...

    async def serve(self, taker: RunTaker) -> None:
        """Give the taker runs, as many as it has places, until cancelled; it goes on whenever the database is back."""
        ...

    async def stop(self) -> None:
        """Give the taker no more runs. What it drives goes on."""
        ...

    async def put_back(self, run_ids: Sequence[str]) -> None:
        """Bring runs that were given to the taker, and that it has not begun, to somebody else soon."""
        ...

    def describe(self) -> QueueDescription: ...
