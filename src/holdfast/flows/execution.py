"""One process's part of a run: from its claim to its result, pause, failure or cancellation."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeVar

from holdfast.errors import Nondeterminism, RunCancelled, RunPaused
from holdfast.flows.context import Context
from holdfast.flows.value_codec import UNDECLARED
from holdfast.runtime.cancellation import CancelWatch, watch_for_cancel
from holdfast.runtime.checkpoint.base import Claim
from holdfast.runtime.events import EventKind
from holdfast.runtime.failures import describe_error, failed_steps, original_of
from holdfast.runtime.journal import Journal
from holdfast.runtime.records import Records, fingerprint_of
from holdfast.runtime.run_log import RunLog
from holdfast.runtime.step import CancelRun, ResultCodec, Stopped, Suspended

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
    ) -> None:
        self._journal = journal
        self._claim = claim
        self._log = RunLog(journal, claim, records)
        self._name = name
        self._call = call
        self._origin = origin or {}
        self._park_after_s = park_after_s
        self._watch = CancelWatch()

    async def run(self, flow: Callable[[Context], Coroutine[Any, Any, _T]], codec: ResultCodec = UNDECLARED) -> _T:
        end: RunPaused | RunCancelled | None = None
        while end is None:
            log = self._log
            context = Context(log, self._journal, park_after_s=self._park_after_s)
            try:
                return await self._run_once(context, flow, codec)
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
                original = original_of(error)
                if original is error:
                    raise
                raise original from original.__cause__
            finally:
                # Whatever a flow left running must not write to a run that is over, paused or given up.
                log.stop(Nondeterminism("The flow is over; nothing more is recorded for it."))
        raise end

    async def _run_once(
        self, context: Context, flow: Callable[[Context], Coroutine[Any, Any, _T]], codec: ResultCodec
    ) -> _T:
        await self._begin()
        with watch_for_cancel(self._journal, self._log) as self._watch:
            result = await context.run(lambda: flow(context))
        copy: _T
        data, type_name, copy = codec.encode(result, "the result of the flow")
        named = {} if type_name is None else {"result_type": type_name}
        await self._log.append(self._log.event(EventKind.RUN_COMPLETED, result=data, **named), is_last=True)
        return copy

    async def _begin(self) -> None:
        records, log = self._log.records, self._log
        if not log.is_cancel_held:
            log.raise_if_cancelled()
        if records.is_started:
            await log.append(log.event(EventKind.RUN_RESUMED, after=str(records.status)))
            return
        events = [] if records.created is not None else [log.event(EventKind.RUN_CREATED, **self._created())]
        await log.append(*events, log.event(EventKind.RUN_STARTED))

    def _created(self) -> dict[str, Any]:
        facts = {"purpose": self._name, "flow": self._name, **self._call, **self._origin}
        return {**facts, "fingerprint": fingerprint_of(**self._call)}

    async def _pause(self, context: Context) -> RunPaused | RunCancelled | None:
        """End this process's part until a person answers; `None` if someone has answered in the meantime."""
        records = Records(await self._journal.read(self._log.run_id))
        if records.cancel_request is not None and not self._log.is_cancel_held:
            return await self._cancel_by_request()
        children = context.paused_children()
        waiting = [record.key for record in records.waiting_for_person()]
        if records.cancel_request is not None or not set(context.waits_for()) <= set(waiting):
            self._log = RunLog(self._journal, self._claim, records)
            return None
        reason: dict[str, Any] = {"reason": "approval", "waiting": waiting}
        if children:
            reason |= {"reason": "approval" if waiting else "child", "children": children}
        with _unwrapped():
            await self._log.append(self._log.event(EventKind.RUN_PAUSED, **reason), is_last=True)
        if children and not waiting:
            return _to_child_paused(self._log.run_id, children[0])
        return to_run_paused(self._log.run_id, records)

    async def _cancel_by_request(self) -> RunCancelled:
        request = Records(await self._journal.read(self._log.run_id)).cancel_request or {}
        return await self._cancel(request.get("reason", ""), request.get("by", ""))

    async def _cancel(self, reason: str, by: str) -> RunCancelled:
        with _unwrapped():
            facts: dict[str, Any] = {"reason": reason, "by": by}
            if left := sorted(key for _, key in self._log.holds):
                facts["unfinished"] = left  # cancelled again while it compensated
            await self._log.append(self._log.event(EventKind.RUN_CANCELLED, **facts), is_last=True)
        return RunCancelled(f"Run {self._log.run_id!r} was cancelled.", run_id=self._log.run_id, reason=reason)

    async def _fail(self, error: Exception) -> None:
        event = self._log.event(
            EventKind.RUN_FAILED, error=describe_error(original_of(error)), steps=failed_steps(error)
        )
        with _unwrapped(error):
            await self._log.append(event, is_last=True)


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


def _to_child_paused(run_id: str, child: Mapping[str, Any]) -> RunPaused:
    child_id, key = child["run_id"], child["key"]
    return RunPaused(
        f"Run {run_id!r} waits for its child {child_id!r}, which waits for a person to answer {key!r}.",
        hint=f"Answer with decide({child_id!r}, {key!r}, 'approve'), then run {run_id!r} again.",
        run_id=child_id,
        key=key,
        keys=[key],
        parent=run_id,
    )


def to_run_paused(run_id: str, records: Records) -> RunPaused:
    """Return the error that names what a paused run waits for."""
    keys = [record.key for record in records.waiting_for_person()] or list(records.end.get("waiting", ()))
    return RunPaused(
        f"Run {run_id!r} waits for a person to answer {' and '.join(repr(key) for key in keys)}.",
        hint=f"Answer with decide({run_id!r}, {keys[0]!r}, 'approve'), then run it again." if keys else "",
        run_id=run_id,
        key=keys[0] if keys else "",
        keys=keys,
    )
