"""Durable steps for any asynchronous Python code: `run_flow` starts a function or goes on where it stopped.

The function runs again from its first line on every resume; steps that are recorded return their result without being
called. So it must ask for the same steps in the same order: what differs between two executions (the time, a random
number, an answer from outside) belongs into a step. `Nondeterminism` says where it did not.
"""

import contextlib
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar, TypeVarTuple, overload

from holdfast.enums import RunStatus
from holdfast.flows.context import Context
from holdfast.flows.execution import FlowExecution, to_run_cancelled, to_run_paused
from holdfast.flows.format_check import check_format
from holdfast.flows.lane import refuse_in_flow
from holdfast.flows.service.flow_registry import name_of
from holdfast.flows.sync_context import SyncContext, call_flow
from holdfast.flows.time_limit import find_limit
from holdfast.flows.typed_values.call_record import check_call, record_call
from holdfast.flows.typed_values.declared_types import result_codec
from holdfast.runtime.checkpoint.base import check_run_id, new_run_id
from holdfast.runtime.clock import now
from holdfast.runtime.events import Event
from holdfast.runtime.journal import Journal
from holdfast.runtime.records import Records
from holdfast.runtime.step import ResultCodec
from holdfast.runtime.stores import StoreLike, open_journal

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


@overload
async def run_flow(
    flow: Callable[Concatenate[Context, _P], Coroutine[Any, Any, _T]], /, *args: _P.args, **kwargs: _P.kwargs
) -> _T: ...
@overload
async def run_flow(
    flow: Callable[[Context, *_Ts], Coroutine[Any, Any, _T]],
    /,
    *args: *_Ts,
    run_id: str | None = None,
    store: StoreLike = "holdfast.db",
    tags: Mapping[str, str] | None = None,
) -> _T: ...
@overload
async def run_flow(flow: Callable[Concatenate[SyncContext, _P], _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T: ...
@overload
async def run_flow(
    flow: Callable[[SyncContext, *_Ts], _T],
    /,
    *args: *_Ts,
    run_id: str | None = None,
    store: StoreLike = "holdfast.db",
    tags: Mapping[str, str] | None = None,
) -> _T: ...
async def run_flow(  # type: ignore[misc]  # it takes what either signature allows
    flow: Callable[..., Coroutine[Any, Any, Any]],
    /,
    *args: Any,
    run_id: str | None = None,
    store: StoreLike = "holdfast.db",
    tags: Mapping[str, str] | None = None,
    **kwargs: Any,
) -> Any:
    """Run `flow(ctx, *args, **kwargs)` to its end, or go on with it where it stopped, and return its result.

    `tags` are recorded with a new run, for searching. A completed run returns what is stored; a failed one goes on at
    the step that failed. Raises `RunPaused` while a person must answer, `RunBusy` if another live process has the run,
    `RunCancelled` if it was cancelled, be it by its own time limit, `Nondeterminism` if it was started with other
    arguments, and what the flow itself raises.
    """
    if not callable(flow):
        raise _no_flow(flow)
    if run_id is None:
        refuse_in_flow("run_flow", "Use ctx.run_flow(child, …), whose run is this one's child.")
    run_id = new_run_id() if run_id is None else check_run_id(run_id)
    origin = {} if tags is None else {"tags": check_tags(tags)}
    async with open_journal(store) as journal:
        return await run_in_journal(journal, FlowCall(flow, args, kwargs, run_id=run_id, origin=origin))


def _no_flow(found: object) -> TypeError:
    if not inspect.iscoroutine(found):
        return TypeError(f"run_flow takes an asynchronous function, not {found!r}.")
    found.close()
    name = found.__name__
    return TypeError(
        f"run_flow takes a flow and its arguments, not its call: write run_flow({name}, …), not {name}(…)."
    )


@dataclass(frozen=True)
class FlowCall:
    """A flow to be run, under which id, and what its `run.created` says of where it comes from."""

    flow: Callable[..., Coroutine[Any, Any, Any]]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    run_id: str = field(kw_only=True)
    origin: Mapping[str, Any] = field(kw_only=True, default_factory=dict)
    park_after_s: float | None = field(kw_only=True, default=None)

    @property
    def name(self) -> str:
        return name_of(self.flow)

    def recorded(self) -> dict[str, Any]:
        """Return the arguments as they are recorded."""
        return record_call(self.args, self.kwargs)


async def run_in_journal(journal: Journal, call: FlowCall) -> Any:
    """Do what `run_flow` does, in a journal that is open; with `park_after_s`, raises `Parked` for a long wait."""
    arguments, run_id, codec = call.recorded(), call.run_id, result_codec(call.flow)
    events: Sequence[Event] = await journal.read(run_id) if await journal.read_head(run_id) else ()
    limit = find_limit(journal, run_id, call.name)
    records = Records(events if limit is None else await limit.apply(events))
    if _is_complete(run_id, records, arguments):
        return _result(records, codec)
    if events:
        await check_format(journal, run_id)
    claim = await journal.claim(run_id)
    try:
        if claim.head > records.last_seq:  # another process was faster with some or all of it
            for event in await journal.read(run_id, records.last_seq):
                records.add(event)
            if _is_complete(run_id, records, arguments):
                return _result(records, codec)
        execution = FlowExecution(
            journal, claim, records, call.name, arguments, origin=call.origin, park_after_s=call.park_after_s
        )
        execution.has_time_limit = limit is not None
        with contextlib.nullcontext() if limit is None else limit.watching():
            return await execution.run(lambda ctx: call_flow(call.flow, ctx, *call.args, **call.kwargs), codec)
    finally:
        await journal.release(claim)


def check_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags as they are recorded. Raises `TypeError` if they are not texts by name."""
    if not isinstance(tags, Mapping) or not all(isinstance(part, str) for pair in tags.items() for part in pair):
        raise TypeError(f"tags are texts by name, such as {{'team': 'x'}}, not {tags!r}.")
    return dict(tags)


def _result(records: Records, codec: ResultCodec) -> Any:
    return codec.decode(records.end.get("result"), records.end.get("result_type"), "The result of the flow")


def _is_complete(run_id: str, records: Records, call: Mapping[str, Any]) -> bool:
    """Return true if nothing is left to do. Raises if the run must not go on now, or not with this call."""
    if records.created is not None:
        check_call(run_id, records.created, call)
    if records.status is RunStatus.CANCELLED:
        raise to_run_cancelled(run_id, records.end)
    if records.status is RunStatus.PAUSED and records.cancel_request is None and not _is_answered(records):
        raise to_run_paused(run_id, records)
    return records.status is RunStatus.COMPLETED


def _is_answered(records: Records) -> bool:
    waiting = records.end.get("waiting", ())
    if not isinstance(waiting, Sequence):
        return True
    questions = records.waiting_for_person()
    is_late = any(record.wake_at and record.wake_at <= now() for record in questions)
    return not waiting or len(questions) < len(waiting) or is_late
