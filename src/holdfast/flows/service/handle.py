"""A handle of one flow run: its result, its status, what it shows, its events, and what others send it."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Generic, TypeVar

from holdfast.enums import ApprovalDecisionAction, RunStatus
from holdfast.flows.answers import cancel_flow, decide, retry_flow
from holdfast.flows.execution import to_run_cancelled
from holdfast.flows.operations.event_wait import send_event
from holdfast.flows.service.flow_info import FlowDetails, describe_run, find_status
from holdfast.flows.service.flow_registry import find_flow
from holdfast.flows.typed_values.declared_types import result_codec
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.outcomes.failures import rebuild_error
from holdfast.runtime.records import Records
from holdfast.runtime.stores import StoreLike, no_such_run, open_journal

_T = TypeVar("_T")


class FlowHandle(Generic[_T]):
    """A run of a flow, wherever it is driven. Making one reads nothing."""

    def __init__(self, run_id: str, store: StoreLike = "holdfast.db", flow: Callable[..., Any] | None = None) -> None:
        """Name a run. `flow`, if the program has it, says of which type the result is; a registered one is found."""
        self.run_id = run_id
        self.store = store
        self._flow = flow

    def __repr__(self) -> str:
        return f"FlowHandle({self.run_id!r})"

    async def result(self) -> _T:
        """Wait until the run is over, in whichever process, and return its result.

        Raises what the flow has raised, and `RunCancelled`. A run that waits for a person is waited for. Where this
        program knows the flow, by its function or by its name, the result is of the type that it declares; elsewhere it
        is the JSON data that was recorded.
        """
        last, name = None, ""
        async for event in self.events():
            last = event
            if event.kind == EventKind.RUN_CREATED:
                name = str(event.payload.get("flow", ""))
        if last is None or last.kind == EventKind.RUN_CANCELLED:
            raise to_run_cancelled(self.run_id, {} if last is None else last.payload)
        if last.kind == EventKind.RUN_FAILED:
            error = last.payload.get("error")
            raise rebuild_error(f"the flow of run {self.run_id}", error if isinstance(error, dict) else {})
        return self._read_result(last, name)  # type: ignore[no-any-return]  # what the flow returned

    def _read_result(self, end: Event, name: str) -> Any:
        data, type_name = end.payload.get("result"), end.payload.get("result_type")
        definition = find_flow(name)
        function = self._flow or (definition.function if definition else None)
        if type_name is None or function is None:
            return data
        return result_codec(function).decode(data, type_name, f"The result of run {self.run_id!r}")

    async def status(self) -> RunStatus:
        """Return the run's status as the journal has it now. Raises `RunNotFound`."""
        return find_status(Records(await self._read()))

    async def describe(self) -> FlowDetails:
        """Return what the run shows and waits for now: its status text, its last partial result, open approvals.

        Raises `RunNotFound`.
        """
        return describe_run(self.run_id, await self._read())

    async def _read(self) -> Sequence[Event]:
        async with open_journal(self.store) as journal:
            events = await journal.read(self.run_id)
        if not events:
            raise no_such_run(journal.store, self.run_id)
        return events

    async def events(self, after: int = 0) -> AsyncIterator[Event]:
        """Yield the run's events with a number above `after`, and new ones as they are written, until it is over.

        Raises `RunNotFound` if there is no such run.
        """
        async with open_journal(self.store) as journal:
            if not await journal.read_head(self.run_id):
                raise no_such_run(journal.store, self.run_id)
            over = await self._find_end(after)
            async for event in journal.follow(self.run_id, after):
                yield event
                if event.is_terminal and event.seq >= over:
                    return

    async def _find_end(self, after: int) -> int:
        """Return the number of the last event by which the run was over, if it is: a failed run may have gone on.

        After a request to try it again the end is one that comes later.
        """
        async with open_journal(self.store) as journal:
            events = await journal.read(self.run_id, after)
        ends = [event.seq for event in events if event.is_terminal or event.kind == EventKind.RUN_RESUME_REQUESTED]
        return max(ends, default=0)

    async def send_event(self, name: str, data: Any = None, *, dedup_id: str | None = None) -> None:
        """Send an event to the run, as the function `send_event` does."""
        await send_event(self.run_id, name, data, store=self.store, dedup_id=dedup_id)

    async def decide(
        self, key: str, action: ApprovalDecisionAction | str, *, comment: str = "", by: str = "", result: Any = None
    ) -> None:
        """Answer what the run waits for, as the function `decide` does."""
        await decide(self.run_id, key, action, store=self.store, comment=comment, by=by, result=result)

    async def cancel(self, reason: str = "", by: str = "") -> None:
        """Cancel the run: at once if nobody drives it, else as soon as its owner sees the request.

        Raises `RunNotFound`, `RunAlreadyTerminal`.
        """
        await cancel_flow(self.run_id, store=self.store, reason=reason, by=by)

    async def retry(self, by: str = "") -> None:
        """Let a failed run go on at the step that failed, in a `Runtime` or server that knows its flow.

        Raises `RunNotFound`, `RunNotInState`.
        """
        await retry_flow(self.run_id, store=self.store, by=by)


def get_flow(run_id: str, *, store: StoreLike = "holdfast.db") -> FlowHandle[Any]:
    """Return a handle of a known run."""
    return FlowHandle(run_id, store)
