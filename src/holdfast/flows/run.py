"""Durable steps for any asynchronous Python code: `run_flow` starts a function or goes on where it stopped.

The function runs again from its first line on every resume; steps that are recorded return their result without being
called. So it must ask for the same steps in the same order: what differs between two executions (the time, a random
number, an answer from outside) belongs into a step. `Nondeterminism` says where it did not.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from holdfast.enums import RunStatus
from holdfast.errors import Nondeterminism, PayloadInvalid, RunCancelled, RunPaused
from holdfast.flows.context import Context
from holdfast.runtime.cancellation import CancelWatch, watch_for_cancel
from holdfast.runtime.checkpoint.base import Claim, check_run_id
from holdfast.runtime.events import EventKind
from holdfast.runtime.failures import describe_error, failed_steps
from holdfast.runtime.journal import Journal
from holdfast.runtime.jsondata import to_json
from holdfast.runtime.records import Records, check_fingerprint, fingerprint_of
from holdfast.runtime.run_log import RunLog
from holdfast.runtime.step import CancelRun, Stopped, Suspended
from holdfast.runtime.stores import StoreLike, open_journal

_T = TypeVar("_T")


async def run_flow(
    flow: Callable[..., Coroutine[Any, Any, _T]],
    *args: Any,
    run_id: str | None = None,
    store: StoreLike = "holdfast.db",
    **kwargs: Any,
) -> _T:
    """Run `flow(ctx, *args, **kwargs)` to its end, or go on with it where it stopped, and return its result.

    A completed run returns what is stored; a failed one goes on at the step that failed. Raises `RunPaused` while a
    person must answer, `RunBusy` if another live process has the run, `RunCancelled` if it was cancelled,
    `Nondeterminism` if it was started with other arguments, and what the flow itself raises.
    """
    if not callable(flow):
        raise TypeError(f"run_flow takes an asynchronous function, not {flow!r}.")
    run_id = uuid.uuid4().hex if run_id is None else check_run_id(run_id)
    call = {"args": [_or_type(arg) for arg in args], "kwargs": {name: _or_type(arg) for name, arg in kwargs.items()}}
    async with open_journal(store) as journal:
        records = Records(await journal.read(run_id) if await journal.read_head(run_id) else ())
        if _is_complete(run_id, records, call):
            return records.end.get("result")  # type: ignore[return-value]  # what the flow returned then
        claim = await journal.claim(run_id)
        try:
            if claim.head > records.last_seq:  # another process was faster with some or all of it
                for event in await journal.read(run_id, records.last_seq):
                    records.add(event)
                if _is_complete(run_id, records, call):
                    return records.end.get("result")  # type: ignore[return-value]  # as above
            name = getattr(flow, "__qualname__", None) or type(flow).__qualname__
            return await _Drive(journal, claim, records, name, call).run(lambda ctx: flow(ctx, *args, **kwargs))
        finally:
            await journal.release(claim)


def _is_complete(run_id: str, records: Records, call: Mapping[str, Any]) -> bool:
    """Return true if nothing is left to do. Raises if the run must not go on now, or not with this call."""
    if records.created is not None:
        _check_arguments(run_id, records, call)
    if records.status is RunStatus.CANCELLED:
        raise RunCancelled(f"Run {run_id!r} was cancelled.", hint="Start a new run.", run_id=run_id)
    if records.status is RunStatus.PAUSED and records.cancel_request is None and not _is_answered(records):
        raise _paused(run_id, records)
    return records.status is RunStatus.COMPLETED


class _Drive:
    """One process's part of a run: from claim to result, pause, failure or cancellation."""

    def __init__(self, journal: Journal, claim: Claim, records: Records, name: str, call: Mapping[str, Any]) -> None:
        self._journal = journal
        self._claim = claim
        self._log = RunLog(journal, claim, records)
        self._name = name
        self._call = call
        self._watch = CancelWatch()

    async def run(self, flow: Callable[[Context], Coroutine[Any, Any, _T]]) -> _T:
        end: RunPaused | RunCancelled | None = None
        while end is None:
            log = self._log
            context = Context(log, self._journal)
            try:
                return await self._run_once(context, flow)
            except Suspended:
                end = await self._pause(context)
            except CancelRun as request:
                end = await self._cancel(request.reason, request.by)
            except Stopped as stopped:
                raise stopped.error from stopped.error.__cause__
            except asyncio.CancelledError:
                if not self._watch.is_cancel_requested:
                    raise  # a shutdown is no pause: the run stays running, and whoever is next goes on with it
                _forget_cancellation()
                end = await self._cancel_by_request()
            except Exception as error:
                await self._fail(error)
                raise
            finally:
                # Whatever a flow left running must not write to a run that is over, paused or given up.
                log.stop(Nondeterminism("The flow is over; nothing more is recorded for it."))
        raise end

    async def _run_once(self, context: Context, flow: Callable[[Context], Coroutine[Any, Any, _T]]) -> _T:
        await self._begin()
        with watch_for_cancel(self._journal, self._log) as self._watch:
            result = await context.run(lambda: flow(context))
        copy: _T = to_json(result, "the result of the flow")[1]
        await self._log.append(self._log.event(EventKind.RUN_COMPLETED, result=copy), is_last=True)
        return copy

    async def _begin(self) -> None:
        records, log = self._log.records, self._log
        log.raise_if_cancelled()
        if records.is_started:
            await log.append(log.event(EventKind.RUN_RESUMED, after=str(records.status)))
            return
        events = [] if records.created is not None else [log.event(EventKind.RUN_CREATED, **self._created())]
        await log.append(*events, log.event(EventKind.RUN_STARTED))

    def _created(self) -> dict[str, Any]:
        return {"purpose": self._name, "flow": self._name, **self._call, "fingerprint": fingerprint_of(**self._call)}

    async def _pause(self, context: Context) -> RunPaused | RunCancelled | None:
        """End this process's part until a person answers; `None` if someone has answered in the meantime."""
        records = Records(await self._journal.read(self._log.run_id))
        if records.cancel_request is not None:
            return await self._cancel_by_request()
        waiting = [record.key for record in records.waiting_for_person()]
        if not set(context.waits_for()) <= set(waiting):
            self._log = RunLog(self._journal, self._claim, records)
            return None
        with _unwrapped():
            await self._log.append(
                self._log.event(EventKind.RUN_PAUSED, reason="approval", waiting=waiting), is_last=True
            )
        return _paused(self._log.run_id, records)

    async def _cancel_by_request(self) -> RunCancelled:
        request = Records(await self._journal.read(self._log.run_id)).cancel_request or {}
        return await self._cancel(request.get("reason", ""), request.get("by", ""))

    async def _cancel(self, reason: str, by: str) -> RunCancelled:
        with _unwrapped():
            await self._log.append(self._log.event(EventKind.RUN_CANCELLED, reason=reason, by=by), is_last=True)
        return RunCancelled(f"Run {self._log.run_id!r} was cancelled.", run_id=self._log.run_id, reason=reason)

    async def _fail(self, error: Exception) -> None:
        event = self._log.event(EventKind.RUN_FAILED, error=describe_error(error), steps=failed_steps(error))
        with _unwrapped(error):
            await self._log.append(event, is_last=True)


@contextlib.contextmanager
def _unwrapped(cause: BaseException | None = None) -> Iterator[None]:
    """Let a user see why the last append of a run was refused, not our word for stopping."""
    try:
        yield
    except Stopped as stopped:
        raise stopped.error from cause


def _check_arguments(run_id: str, records: Records, call: Mapping[str, Any]) -> None:
    recorded = (records.created or {}).get("fingerprint", {})
    check_fingerprint(f"Run {run_id!r}", recorded, fingerprint_of(**call))


def _is_answered(records: Records) -> bool:
    waiting = records.end.get("waiting", ())
    if not isinstance(waiting, Sequence):
        return True
    return not waiting or len(records.waiting_for_person()) < len(waiting)


def _forget_cancellation() -> None:
    """Undo our own request to cancel, which has done its work: to everyone else this task is not being cancelled."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


def _paused(run_id: str, records: Records) -> RunPaused:
    keys = [record.key for record in records.waiting_for_person()] or list(records.end.get("waiting", ()))
    return RunPaused(
        f"Run {run_id!r} waits for a person to answer {' and '.join(repr(key) for key in keys)}.",
        hint=f"Answer with decide({run_id!r}, {keys[0]!r}, 'approve'), then run it again." if keys else "",
        run_id=run_id,
        key=keys[0] if keys else "",
        keys=keys,
    )


def _or_type(value: Any) -> Any:
    """Return an argument as it is recorded: itself where it is JSON data, else its type alone."""
    try:
        return to_json(value)[1]
    except PayloadInvalid:
        return {"$type": f"{type(value).__module__}.{type(value).__qualname__}"}
