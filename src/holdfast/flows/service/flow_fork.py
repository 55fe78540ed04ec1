"""A new run of a flow from where another stood before a step: its journal up to there, under another id.

Rule: the run it comes from is not touched. What it had begun and not ended by then (calls, waits, children, questions)
is not taken over: the new run does it itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.errors import ConfigInvalid, SequenceConflict
from holdfast.flows.format_check import check_format
from holdfast.flows.service.handle import FlowHandle
from holdfast.runtime import flow_rows
from holdfast.runtime.checkpoint.base import check_run_id, new_run_id
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.flow_rows import FlowOptions, rows_of
from holdfast.runtime.journal import Journal
from holdfast.runtime.records import Record, Records, StepState, find_record_type
from holdfast.runtime.stores import StoreLike, no_such_run, open_journal

_MOST_NAMES = 20


async def fork_flow(
    run_id: str, before: str, *, new_id: str | None = None, store: StoreLike = "holdfast.db"
) -> FlowHandle[Any]:
    """Start a new run with all that a run has recorded before the step of this key, and return its handle.

    Whoever drives flows runs it from there, with the code and the arguments of the flow. The same `new_id` again gives
    the same run. Raises `RunNotFound`, and `ConfigInvalid` if the run has no such step or the id is another run's.
    """
    async with open_journal(store) as journal:
        await fork_in_journal(journal, run_id, before, new_id := new_id or new_run_id())
    return FlowHandle(new_id, store)


async def fork_in_journal(journal: Journal, run_id: str, before: str, new_id: str) -> None:
    """Do what `fork_flow` does."""
    check_run_id(new_id)
    events = await journal.read(run_id) if await journal.read_head(run_id) else []
    if not events:
        raise no_such_run(journal.store, run_id)
    await check_format(journal, run_id)
    copied = copy_before(events, before, new_id)
    created = copied[0].payload
    row = flow_rows.created(new_id, str(created.get("flow", "")), FlowOptions.of(created))
    try:
        await journal.append(new_id, copied, rows=rows_of(journal, row))
        # crash: the new run is there whole, and due, or not at all.
    except SequenceConflict:
        other = Records(await journal.read(new_id)).created or {}
        if other.get("forked_from") != created["forked_from"]:
            raise ConfigInvalid(
                f"Run {new_id!r} is there already.", hint="Choose another run id.", run_id=new_id
            ) from None


def copy_before(events: Sequence[Event], key: str, new_id: str) -> list[Event]:
    """Return the events with which a fork begins, numbered for its own journal."""
    origin = events[0].run_id
    places = [record.first_seq for record in Records(events).by_key.values() if record.key == key]
    if not places or events[0].kind != EventKind.RUN_CREATED:
        raise ConfigInvalid(f"Run {origin!r} has no step {key!r}.", hint=f"It has {_list_keys(events)}.", run_id=origin)
    earlier = [event for event in events if event.seq < min(places)]
    ended = {place for place, record in Records(earlier).by_key.items() if _is_ended(record)}
    copied: list[Event] = []
    numbers: dict[int, int] = {}
    for event in earlier:
        if event.kind == EventKind.RUN_CREATED:
            payload = {name: value for name, value in event.payload.items() if name != "parent"}
            payload["forked_from"] = {"run_id": origin, "key": key}
        elif event.kind.startswith("run.") or not _is_copied(event, ended):
            continue
        else:
            payload = _renumber(event.payload, numbers) if event.kind == EventKind.WAIT_COMPLETED else event.payload
        numbers[event.seq] = len(copied) + 1
        copied.append(replace(event, run_id=new_id, seq=len(copied) + 1, payload=payload))
    return copied


def _is_ended(record: Record) -> bool:
    """Tell whether a replay finds all of it, and does nothing more for it."""
    if record.is_waiting_for_person:
        return False
    if record.type in ("step", "child", "wait"):
        return record.state in (StepState.COMPLETED, StepState.FAILED)
    return True


def _is_copied(event: Event, ended: "set[tuple[Any, str]]") -> bool:
    key = event.payload.get("key")
    types = find_record_type(event)
    return not types or not isinstance(key, str) or any((each, key) in ended for each in types)


def _renumber(payload: Mapping[str, Any], numbers: Mapping[int, int]) -> dict[str, Any]:
    """Let the end of a wait name its event by the number that this has here."""
    return {**payload, "event": numbers.get(payload.get("event", 0), 0)}


def _list_keys(events: Sequence[Event]) -> str:
    records = sorted(Records(events).by_key.values(), key=lambda record: record.first_seq)
    names = [repr(record.key) for record in records]
    return ", ".join(names[:_MOST_NAMES]) + (" …" if len(names) > _MOST_NAMES else "") or "none"
