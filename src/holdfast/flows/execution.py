"""One process's part of a run: from its claim to its result, pause, failure or cancellation."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from holdfast.enums import RunStatus
from holdfast.errors import Nondeterminism, RowRefused, RunCancelled, RunPaused, SequenceConflict
from holdfast.flows.context import Context
from holdfast.flows.typed_values.value_codec import UNDECLARED
from holdfast.runtime import flow_rows
from holdfast.runtime.cancellation import WATCH_AFTER_S, CancelWatch, watch_for_cancel
from holdfast.runtime.checkpoint.base import Claim, Statement
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.flow_rows import FlowOptions, rows_of
from holdfast.runtime.journal import Journal
from holdfast.runtime.outcomes.failures import describe_whole, failed_steps, original_of
from holdfast.runtime.records import Records, fingerprint_of
from holdfast.runtime.run_log import FOR_THE_OWNER, RunLog
from holdfast.runtime.step import CancelRun, Parked, ResultCodec, Stopped, Suspended
from holdfast.runtime.stores import read_events

_T = TypeVar("_T")


class FlowExecution:
    """Runs a flow that is claimed, and records how this process's part of it ended."""

    def __init__(
        self,
        journal: Journal,
        claim: Claim,
        records: Records,
        name: str,
        call: Mapping[str, Any],
        *,
        origin: Mapping[str, Any] | None = None,
        park_after_s: float | None = None,
        is_begun: bool = False,
    ) -> None:
        """Take over a claimed run; with `is_begun` it is recorded already that this process's part has begun."""
        self._journal = journal
        self._claim = claim
        self._log = RunLog(journal, claim, records)
        self._name = str((records.created or {}).get("flow") or name)
        self._call = call
        self._origin = origin or {}
        self._park_after_s = park_after_s
        self._watch = CancelWatch()
        self._begun_at = self._log.head if is_begun else 0
        self._is_drained = False
        self.on_end: Callable[[], None] = lambda: None
        """Called when the flow's code is over, and only that is to be recorded."""
        self.has_time_limit = False
        """Somebody in this process asks for the cancellation in time: it is heard of at once."""
        self.is_recorded = False
        """True once the journal has how this part ended: with a result, a failure, a pause or a cancellation."""

    async def run(self, flow: Callable[[Context], Awaitable[_T]], codec: ResultCodec = UNDECLARED) -> _T:
        """Run the flow to its end. Raises what ends this process's part of it; `Parked` only with `park_after_s`."""
        end: RunPaused | RunCancelled | Parked | None = None
        while end is None:
            log = self._log
            context = Context(log, self._journal, park_after_s=self._park_after_s)
            try:
                return await self._run_once(context, flow, codec)
            except Suspended:
                end = await self._pause(context)
            except Parked as parked:
                end = await self._park(parked)
            except CancelRun as request:
                end = await self._cancel(request.reason, request.by)
            except Stopped as stopped:
                raise stopped.error from stopped.error.__cause__
            except asyncio.CancelledError:
                if not self._watch.is_cancel_requested or log.is_shut_down:
                    raise  # a shutdown is no pause: the run stays running, and whoever is next goes on with it
                _forget_cancellation()
                end = await self._cancel_by_request()
            except Exception as error:
                await self._fail(error)
                original = original_of(error)
                if original is error:
                    raise
                raise original from original.__cause__
            finally:
                # Whatever a flow left running must not write to a run that is over, paused or given up.
                log.stop(Nondeterminism("The flow is over; nothing more is recorded for it."))
        raise end

    def drain(self) -> bool:
        """Begin no more calls; return true if one is in flight, whose end is worth waiting for."""
        self._is_drained = True
        self._log.drain()
        return self._log.has_call_in_flight

    async def _run_once(self, context: Context, flow: Callable[[Context], Awaitable[_T]], codec: ResultCodec) -> _T:
        if not self._begun_at:
            await self._begin()
        after_s = 0.0 if self.has_time_limit else WATCH_AFTER_S
        with watch_for_cancel(
            self._journal, self._log, has_met=context._has_met_requests, after_s=after_s
        ) as self._watch:
            result = await context.run(lambda: flow(context))
        copy: _T
        data, type_name, copy = codec.encode(result, "the result of the flow")
        named = {} if type_name is None else {"result_type": type_name}
        await self._end(self._log.event(EventKind.RUN_COMPLETED, result=data, **named), RunStatus.COMPLETED)
        return copy

    async def _begin(self) -> None:
        records, log = self._log.records, self._log
        if not log.is_cancel_held:
            log.raise_if_cancelled()
        origin = records.created or self._origin
        row = flow_rows.started(log.run_id, self._name, FlowOptions.of(origin))
        rows = rows_of(self._journal, row)
        if records.is_started:
            death: dict[str, Any] = {"taken_over": True} if self._claim.is_takeover else {}
            await log.append(log.event(EventKind.RUN_RESUMED, after=str(records.status), **death), rows=rows)
        else:
            created = to_created(self._name, self._call, self._origin)
            events = [] if records.created is not None else [log.event(EventKind.RUN_CREATED, **created)]
            await log.append(*events, log.event(EventKind.RUN_STARTED), rows=rows)
        self._begun_at = log.head

    async def _pause(self, context: Context) -> RunPaused | RunCancelled | None:
        """End this process's part until a person answers; `None` if someone has answered in the meantime."""
        run_id, children = self._log.run_id, context.paused_children()
        while True:
            await self._log.flush_deferred()
            records = Records(await read_events(self._journal, run_id))
            if records.cancel_request is not None and not self._log.is_cancel_held:
                return await self._cancel_by_request()
            waiting = [record.key for record in records.waiting_for_person()]
            if records.cancel_request is not None or not set(context.waits_for()) <= set(waiting):
                self._start_over(records)
                return None
            reason: dict[str, Any] = {"reason": "approval", "waiting": waiting}
            if children:
                reason |= {"reason": "approval" if waiting else "child", "children": children}
            waits_for = ", ".join(waiting or [f"{one['run_id']}:{one['key']}" for one in children])
            times = [one["wake_at"] for one in children if "wake_at" in one]
            row = flow_rows.paused(run_id, waits_for, wake_at=_find_deadline(records, *times))
            event = replace(self._log.event(EventKind.RUN_PAUSED, **reason), seq=records.last_seq + 1)
            try:
                # With its number: an answer that comes in between is looked at, not slept over.
                await self._end(event, row)
            except SequenceConflict:
                continue
            if children and not waiting:
                return _to_child_paused(run_id, children[0], min(times, default=None))
            return to_run_paused(run_id, records)

    async def _park(self, parked: Parked) -> Parked | RunCancelled | None:
        """Give the run up until what it waits for is there; `None` if something has come in the meantime."""
        run_id = self._log.run_id
        await self._log.flush_deferred()
        events = await read_events(self._journal, run_id, self._begun_at)
        if not any(event.kind in FOR_THE_OWNER for event in events):
            head = events[-1].seq if events else self._begun_at
            row = flow_rows.parked(run_id, wake_at=parked.wake_at, waits_for=parked.key, head=head)
            try:
                with _unwrapped():
                    await self._log.append(rows=rows_of(self._journal, row), is_last=True)
                # crash: before this line the run has no living owner and is found as interrupted.
                return parked
            except RowRefused:
                pass  # something was written in between: it may be what this waits for
        records = Records(await read_events(self._journal, run_id))
        if records.cancel_request is not None and not self._log.is_cancel_held:
            return await self._cancel_by_request()
        self._start_over(records)
        return None

    def _start_over(self, records: Records) -> None:
        self._begun_at = 0
        self._log = RunLog(self._journal, self._claim, records)
        if self._is_drained:
            self._log.drain()

    async def _cancel_by_request(self) -> RunCancelled:
        request = Records(await read_events(self._journal, self._log.run_id)).cancel_request or {}
        return await self._cancel(request.get("reason", ""), request.get("by", ""))

    async def _cancel(self, reason: str, by: str) -> RunCancelled:
        facts: dict[str, Any] = {"reason": reason, "by": by}
        if left := sorted(key for _, key in self._log.holds):
            facts["unfinished"] = left  # cancelled again while it compensated
        await self._end(self._log.event(EventKind.RUN_CANCELLED, **facts), RunStatus.CANCELLED)
        return to_run_cancelled(self._log.run_id, facts)

    async def _fail(self, error: Exception) -> None:
        event = self._log.event(
            EventKind.RUN_FAILED, error=describe_whole(original_of(error)), steps=failed_steps(error)
        )
        await self._end(event, RunStatus.FAILED, cause=error)

    async def _end(self, event: Event, row: Statement | RunStatus, *, cause: BaseException | None = None) -> None:
        """Record how this part of the run ended, with the run's row in the same transaction."""
        if isinstance(row, RunStatus):
            row = flow_rows.ended(self._log.run_id, row)
            self.on_end()
        with _unwrapped(cause):
            await self._log.append(event, rows=rows_of(self._journal, row), is_last=True, gives_up=True)
        self.is_recorded = True


def to_created(name: str, call: Mapping[str, Any], origin: Mapping[str, Any]) -> dict[str, Any]:
    """Return the payload of the event that creates a run of a flow."""
    return {"purpose": name, "flow": name, **call, **origin, "fingerprint": fingerprint_of(**call)}


@contextlib.contextmanager
def _unwrapped(cause: BaseException | None = None) -> Iterator[None]:
    """Let a user see why the last append of a run was refused, not our word for stopping."""
    try:
        yield
    except Stopped as stopped:
        raise stopped.error from cause


def _forget_cancellation() -> None:
    """Undo our own request to cancel, which has done its work: to everyone else this task is not being cancelled."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


def _find_deadline(records: Records, *others: float) -> float | None:
    """Return when the first of the questions that wait can no longer be answered, if one has a time limit."""
    times = [record.wake_at for record in records.waiting_for_person() if record.wake_at]
    return min([*times, *others], default=None)


def _to_child_paused(run_id: str, child: Mapping[str, Any], wake_at: float | None) -> RunPaused:
    child_id, key = child["run_id"], child["key"]
    return RunPaused(
        f"Run {run_id!r} waits for its child {child_id!r}, which waits for a person to answer {key!r}.",
        hint=f"Answer with decide({child_id!r}, {key!r}, 'approve'), then run {run_id!r} again.",
        run_id=child_id,
        key=key,
        keys=[key],
        parent=run_id,
        **({} if wake_at is None else {"wake_at": wake_at}),
    )


def to_run_cancelled(run_id: str, end: Mapping[str, Any]) -> RunCancelled:
    """Return the error that says why and by whom a run was cancelled, as its `run.cancelled` has it."""
    reason, by = str(end.get("reason") or ""), str(end.get("by") or "")
    why = f"{f' by {by}' if by else ''}{f': {reason}' if reason else ''}".removesuffix(".")
    return RunCancelled(f"Run {run_id!r} was cancelled{why}.", run_id=run_id, reason=reason, by=by)


def to_run_paused(run_id: str, records: Records) -> RunPaused:
    """Return the error that names what a paused run waits for."""
    keys = [record.key for record in records.waiting_for_person()] or list(records.end.get("waiting", ()))
    wake_at = _find_deadline(records)
    return RunPaused(
        f"Run {run_id!r} waits for a person to answer {' and '.join(repr(key) for key in keys)}.",
        hint=f"Answer with decide({run_id!r}, {keys[0]!r}, 'approve'), then run it again." if keys else "",
        run_id=run_id,
        key=keys[0] if keys else "",
        keys=keys,
        **({} if wake_at is None else {"wake_at": wake_at}),
    )
