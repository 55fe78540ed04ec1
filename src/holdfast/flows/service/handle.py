"""A handle of one flow run: its result, its status, its events, and the request to cancel it."""

from collections.abc import AsyncIterator
from typing import Any, Generic, TypeVar

from holdfast.enums import RunStatus
from holdfast.errors import RunCancelled, RunNotFound
from holdfast.flows.answers import cancel_flow
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.outcomes.failures import rebuild_error
from holdfast.runtime.records import Records
from holdfast.runtime.stores import StoreLike, open_journal

_T = TypeVar("_T")


class FlowHandle(Generic[_T]):
    """A run of a flow, wherever it is driven. Making one reads nothing."""

    def __init__(self, run_id: str, store: StoreLike = "holdfast.db") -> None:
        self.run_id = run_id
        self.store = store

    def __repr__(self) -> str:
        return f"FlowHandle({self.run_id!r})"

    async def result(self) -> _T:
        """Wait until the run is over, in whichever process, and return its result.

        Raises what the flow has raised, and `RunCancelled`. A run that waits for a person is waited for.
        """
        last = None
        async for event in self.events():
            last = event
        if last is None or last.kind == EventKind.RUN_CANCELLED:
            raise RunCancelled(f"Run {self.run_id!r} was cancelled.", run_id=self.run_id)
        if last.kind == EventKind.RUN_FAILED:
            error = last.payload.get("error")
            raise rebuild_error(f"the flow of run {self.run_id}", error if isinstance(error, dict) else {})
        return last.payload.get("result")  # type: ignore[return-value]  # what the flow returned

    async def status(self) -> RunStatus:
        """Return the run's status as the journal has it now. Raises `RunNotFound`."""
        async with open_journal(self.store) as journal:
            records = Records(await journal.read(self.run_id))
        if not records.last_seq:
            raise RunNotFound(f"There is no run {self.run_id!r} in this store.", run_id=self.run_id)
        return RunStatus(records.status)

    async def events(self, after: int = 0) -> AsyncIterator[Event]:
        """Yield the run's events with a number above `after`, and new ones as they are written, until it is over.

        Raises `RunNotFound` if there is no such run.
        """
        async with open_journal(self.store) as journal:
            if not await journal.read_head(self.run_id):
                raise RunNotFound(f"There is no run {self.run_id!r} in this store.", run_id=self.run_id)
            over = await self._find_end(after)
            async for event in journal.follow(self.run_id, after):
                yield event
                if event.is_terminal and event.seq >= over:
                    return

    async def _find_end(self, after: int) -> int:
        """Return the number of the last event by which the run was over, if it is: a failed run may have gone on."""
        async with open_journal(self.store) as journal:
            events = await journal.read(self.run_id, after)
        return max((event.seq for event in events if event.is_terminal), default=0)

    async def cancel(self, reason: str = "", by: str = "") -> None:
        """Cancel the run: at once if nobody drives it, else as soon as its owner sees the request.

        Raises `RunNotFound`, `RunAlreadyTerminal`.
        """
        await cancel_flow(self.run_id, store=self.store, reason=reason, by=by)


def get_flow(run_id: str, *, store: StoreLike = "holdfast.db") -> FlowHandle[Any]:
    """Return a handle of a known run."""
    return FlowHandle(run_id, store)
