"""Child flows: a run of its own within another, linked both ways, started once and never lost.

Rule: the child's id follows from its parent's id and the key, so that whoever goes on finds the child that was started.
"""

import asyncio
import contextlib
import hashlib
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from holdfast.enums import RunStatus
from holdfast.errors import Nondeterminism, RunBusy, RunCancelled, RunPaused
from holdfast.flows.lane import ChildPaused, LaneCursor
from holdfast.flows.operations.cancel_delivery import forget_cancellation, is_requested
from holdfast.flows.service.flow_registry import to_definitions
from holdfast.flows.typed_values.declared_types import result_codec
from holdfast.flows.typed_values.value_codec import Codec
from holdfast.runtime.checkpoint.base import check_run_id
from holdfast.runtime.events import EventKind, create_event
from holdfast.runtime.journal import Journal
from holdfast.runtime.outcomes.failures import as_replayed, describe_whole, rebuild_error
from holdfast.runtime.records import Record, Records, StepState, describe
from holdfast.runtime.run_log import RunLog
from holdfast.runtime.step import Stopped
from holdfast.runtime.stores import read_events, read_for_owner

_BUSY_LOOK_S = 1.0  # how often a child of another process is asked for, beside each of its appends
_MAX_ID_CHARS = 180


def name_of(flow: Callable[..., Any]) -> str:
    """Return the short name of a flow's function, which is the key of its run as a child."""
    name = getattr(flow, "__name__", None) or type(flow).__name__
    return str(name)


def find_function(flow: str | Callable[..., Any]) -> Callable[..., Any]:
    """Return a flow's function, also by the name it is registered under. Raises `ConfigInvalid`, `TypeError`."""
    if isinstance(flow, str):
        (definition,) = to_definitions([flow]).values()
        return definition.function
    if not callable(flow):
        raise TypeError(f"ctx.run_flow takes a flow or its name, not {flow!r}.")
    return flow


def child_run_id(parent_run_id: str, key: str) -> str:
    """Return the id of the child that a run has under a key: readable, of any store, the same for ever."""
    digest = hashlib.sha256(f"{parent_run_id}\0{key}".encode()).hexdigest()[:12]
    readable = f"{parent_run_id}.{re.sub(r'[^A-Za-z0-9_.-]+', '-', key)}"
    return f"{readable[:_MAX_ID_CHARS]}.{digest}"


class ChildRun:
    """One child flow of a run, by the lane and key where it was asked for."""

    def __init__(self, log: RunLog, journal: Journal, lane: LaneCursor, key: str, park_after_s: float | None) -> None:
        self._log = log
        self._journal = journal
        self._lane = lane
        self._key = key
        self._park_after_s = park_after_s

    async def run(
        self,
        flow: Callable[..., Coroutine[Any, Any, Any]],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        run_id: str | None,
    ) -> Any:
        record = self._log.find("child", self._key, {})
        if record is not None and record.state is StepState.COMPLETED:
            return self._replay(flow, record)
        if record is not None and record.state is StepState.FAILED:
            raise rebuild_error(self._key, record.error)
        self._log.begin_call()
        child_id = await self._begin(record, name_of(flow), run_id)
        self._log.holds.add(("child", self._key))
        try:
            return await self._drive(child_id, lambda: self._run(child_id, flow, args, kwargs), result_codec(flow))
        finally:
            self._log.holds.discard(("child", self._key))

    def _replay(self, flow: Callable[..., Any], record: Record) -> Any:
        try:
            return result_codec(flow).decode(record.result, record.result_type, describe("child", self._key))
        except Nondeterminism as error:
            raise Stopped(error) from error

    async def _begin(self, record: Record | None, name: str, run_id: str | None) -> str:
        """Record the link to the child, once, and return its id."""
        if record is not None and record.child_run_id:
            return record.child_run_id
        child_id = child_run_id(self._log.run_id, self._key) if run_id is None else check_run_id(run_id)
        event = self._log.event(EventKind.CHILD_STARTED, self._lane.lane_id, key=self._key, child=child_id, flow=name)
        await self._log.append(event)
        # crash: the child may not exist yet; whoever goes on starts it under the same id.
        return child_id

    async def _run(
        self, child_id: str, flow: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        from holdfast.flows.run import FlowCall, run_in_journal  # it needs the context, which needs this

        origin = {"parent": {"run_id": self._log.run_id, "key": self._key}}
        call = FlowCall(flow, args, kwargs, run_id=child_id, origin=origin, park_after_s=self._park_after_s)
        while True:
            try:
                return await run_in_journal(self._journal, call)
            except RunBusy:
                await self._wait_for_owner(child_id)

    async def _wait_for_owner(self, child_id: str) -> None:
        """Wait until the child's own process has written something, or may be gone."""
        woken = asyncio.Event()
        head = self._journal.heads.get(child_id, 0)
        listening = self._journal.listening(child_id, lambda now: woken.set() if now > head else None)
        with listening, contextlib.suppress(TimeoutError):
            await asyncio.wait_for(woken.wait(), _BUSY_LOOK_S)

    async def _drive(self, child_id: str, run: Callable[[], Coroutine[Any, Any, Any]], codec: Codec) -> Any:
        if self._log.records.cancel_request is not None:
            await self._cancel(child_id, run)
            self._log.raise_if_cancelled()
        try:
            result = await run()
        except asyncio.CancelledError:
            if not is_requested(self._log, self._lane):
                raise
            forget_cancellation()
            await self._cancel(child_id, run)
            self._log.raise_if_cancelled()
            raise
        except RunPaused as paused:
            raise ChildPaused(self._key, paused) from paused
        except Exception as error:
            raised = await self._fail(child_id, error)
            raise raised from raised.__cause__
        data, type_name, result = codec.encode(result, "the result of a child flow")
        named = {} if type_name is None else {"result_type": type_name}
        await self._log.append(
            self._log.event(EventKind.CHILD_COMPLETED, self._lane.lane_id, key=self._key, result=data, **named)
        )
        # crash: before this the child is asked again, and returns what it has stored.
        return result

    async def _fail(self, child_id: str, error: Exception) -> BaseException:
        """Record the child's own failure; what is none ends the parent's part in this process too."""
        status = Records(await read_events(self._journal, child_id)).status
        if status not in (RunStatus.FAILED, RunStatus.CANCELLED):
            return Stopped(error)
        description = describe_whole(error)
        await self._log.append(
            self._log.event(EventKind.CHILD_FAILED, self._lane.lane_id, key=self._key, error=description)
        )
        return as_replayed(self._key, error, description)  # which marks it: a retry of the run retries the child

    async def _cancel(self, child_id: str, run: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Hand the request down, and let the child undo what it has to."""
        self._lane.requests_met = self._log.records.cancel_requests
        request = self._log.records.cancel_request or {}
        facts = {"reason": request.get("reason", ""), "by": request.get("by", "")}
        head = await read_for_owner(self._journal, lambda: self._journal.read_head(child_id))
        records = Records(await read_events(self._journal, child_id) if head else ())
        if not records.last_seq or (isinstance(records.status, RunStatus) and records.status.is_terminal):
            return
        if records.cancel_request is None:
            await self._journal.append(child_id, [create_event(child_id, EventKind.RUN_CANCEL_REQUESTED, **facts)])
        with contextlib.suppress(RunCancelled, RunPaused):
            await run()
