"""Starting a flow without driving it: a run that whoever knows the flow finds and runs."""

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar, TypeVarTuple, overload

from holdfast.errors import ConfigInvalid, SequenceConflict
from holdfast.flows.context import Context
from holdfast.flows.execution import to_created
from holdfast.flows.lane import refuse_in_flow
from holdfast.flows.run import check_tags
from holdfast.flows.service.flow_look import call_up
from holdfast.flows.service.flow_registry import find_flow, name_of
from holdfast.flows.service.handle import FlowHandle
from holdfast.flows.sync_context import SyncContext
from holdfast.flows.typed_values.call_record import check_call, check_recorded, record_call
from holdfast.runtime import flow_rows
from holdfast.runtime.checkpoint.base import check_run_id, new_run_id
from holdfast.runtime.events import EventKind, create_event
from holdfast.runtime.flow_rows import FlowOptions, rows_of
from holdfast.runtime.journal import Journal
from holdfast.runtime.records import Records
from holdfast.runtime.stores import StoreLike, open_journal

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


@overload
async def start_flow(
    flow: str,
    /,
    *args: Any,
    run_id: str | None = None,
    store: StoreLike = "holdfast.db",
    tags: Mapping[str, str] | None = None,
    **kwargs: Any,
) -> FlowHandle[Any]: ...
@overload
async def start_flow(
    flow: Callable[Concatenate[Context, _P], Coroutine[Any, Any, _T]], /, *args: _P.args, **kwargs: _P.kwargs
) -> FlowHandle[_T]: ...
@overload
async def start_flow(
    flow: Callable[[Context, *_Ts], Coroutine[Any, Any, _T]],
    /,
    *args: *_Ts,
    run_id: str | None = None,
    store: StoreLike = "holdfast.db",
    tags: Mapping[str, str] | None = None,
) -> FlowHandle[_T]: ...
@overload
async def start_flow(
    flow: Callable[Concatenate[SyncContext, _P], _T], /, *args: _P.args, **kwargs: _P.kwargs
) -> FlowHandle[_T]: ...
@overload
async def start_flow(
    flow: Callable[[SyncContext, *_Ts], _T],
    /,
    *args: *_Ts,
    run_id: str | None = None,
    store: StoreLike = "holdfast.db",
    tags: Mapping[str, str] | None = None,
) -> FlowHandle[_T]: ...
async def start_flow(  # type: ignore[misc]  # it takes what either signature allows
    flow: str | Callable[..., Any],
    /,
    *args: Any,
    run_id: str | None = None,
    store: StoreLike = "holdfast.db",
    tags: Mapping[str, str] | None = None,
    **kwargs: Any,
) -> FlowHandle[Any]:
    """Write down that `flow(ctx, *args, **kwargs)` is to run, and return a handle of the run at once.

    A `Runtime`, or `holdfast serve --flows`, on the same store runs it; a flow named by text need not be known here. A
    known run id changes nothing and returns its handle. Raises `PayloadInvalid` for arguments that cannot be recorded,
    `Nondeterminism` if the run was started with others.
    """
    if run_id is None:
        refuse_in_flow(
            "start_flow",
            "Give it a run_id, or call it in the function of a step and return the id; or use ctx.run_flow.",
        )
    run_id = new_run_id() if run_id is None else check_run_id(run_id)
    options = FlowOptions(tags=None if tags is None else check_tags(tags))
    await _start(flow, args, kwargs, run_id=run_id, store=store, options=options)
    return FlowHandle(run_id, store, None if isinstance(flow, str) else flow)


async def start_scheduled_flow(
    flow: str, args: Sequence[Any], kwargs: Mapping[str, Any], *, run_id: str, store: StoreLike, options: FlowOptions
) -> None:
    """Do what `start_flow` does for a schedule, by whose options the run may have to wait for earlier ones."""
    await _start(flow, tuple(args), kwargs, run_id=check_run_id(run_id), store=store, options=options)


async def _start(
    flow: str | Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    run_id: str,
    store: StoreLike,
    options: FlowOptions,
) -> None:
    name = flow if isinstance(flow, str) else name_of(flow)
    _check_signature(flow, name, args, kwargs)
    call = record_call(args, kwargs)
    check_recorded(call, name)
    async with open_journal(store) as journal:
        await _create(journal, run_id, name, call, options)
        if options.is_in_line:
            # crash: whoever looks for what is due does it.
            await call_up(journal)


async def _create(journal: Journal, run_id: str, name: str, call: Mapping[str, Any], options: FlowOptions) -> None:
    origin = {"tags": dict(options.tags)} if options.tags else {}
    # The first number of the run: whoever starts it again, in whichever process, finds it taken.
    event = create_event(run_id, EventKind.RUN_CREATED, seq=1, **to_created(name, call, origin))
    rows = rows_of(journal, flow_rows.created(run_id, name, options))
    try:
        await journal.append(run_id, [event], rows=rows)
        return
    except SequenceConflict:
        records = Records(await journal.read(run_id))
    recorded = records.created or {}
    if recorded.get("flow") != name:
        raise ConfigInvalid(
            f"Run {run_id!r} is there already, and of flow {recorded.get('flow')!r}.",
            hint="Choose another run id.",
            run_id=run_id,
        )
    check_call(run_id, recorded, call)


def _check_signature(
    flow: str | Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    """Raise `TypeError` now for arguments that the flow does not take, as far as the flow is known here."""
    definition = find_flow(name) if isinstance(flow, str) else None
    function = definition.function if definition else flow
    if isinstance(function, str):
        return
    if not callable(function):
        raise TypeError(f"start_flow takes a flow or its name, not {flow!r}.")
    try:
        inspect.signature(function).bind(None, *args, **kwargs)
    except TypeError as error:
        raise TypeError(f"Flow {name!r} cannot be called so: {error}.") from None
