"""Recorded journals as regression tests: the code of now against a run of then, without calling anything."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigInvalid, Nondeterminism, PayloadInvalid
from holdfast.flows.context import Context
from holdfast.flows.replay_check import ReplayLog
from holdfast.flows.sync_context import call_flow
from holdfast.flows.typed_values.call_record import restore_call
from holdfast.flows.typed_values.declared_types import result_codec
from holdfast.runtime.checkpoint.adapter import PlainStore
from holdfast.runtime.checkpoint.base import Claim
from holdfast.runtime.checkpoint.memory import InMemoryCheckpointer
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.journal import Journal
from holdfast.runtime.records import Records
from holdfast.runtime.step import Interrupted, Stopped
from holdfast.testing.virtual_clock import skip_time

_ENDS = (EventKind.RUN_COMPLETED, EventKind.RUN_FAILED, EventKind.RUN_CANCELLED, EventKind.RUN_PAUSED)


@dataclass(frozen=True)
class Replay:
    """How a replay ended: with `result`, with `error`, or, if both are `None`, where an unfinished journal ends."""

    result: Any = None
    error: Exception | None = None
    is_finished: bool = False
    """True if the flow ran to its end."""


async def replay(journal_file: str | Path, flow: Callable[..., Any]) -> Replay:
    """Run a flow against a recorded journal: every step returns what is recorded, and no function is called.

    The file is what `holdfast runs events ID --json` prints. Raises `Nondeterminism` if the code asks for anything else
    than the journal has, or ends otherwise than the run did; `ConfigInvalid` if the file is no journal of one run.
    """
    events = _read(Path(journal_file))
    end = next((event for event in reversed(events) if event.kind in _ENDS), None)
    is_over = end is not None and end.is_terminal and end.kind != EventKind.RUN_CANCELLED
    records = Records(event for event in events if event is not end)
    journal = Journal(PlainStore(InMemoryCheckpointer()))
    # Every timer of the journal is over: what came after it is recorded, or is where the journal ends.
    moments = [record.wake_at for record in records.by_key.values() if record.wake_at]
    try:
        with skip_time(start=max(time.time(), *moments, 0.0) + 1):
            outcome = await _run(journal, records, events, flow)
    finally:
        await journal.close()
    if is_over and end is not None:
        _compare(outcome, end, flow)
    return outcome


async def _run(journal: Journal, records: Records, events: Sequence[Event], flow: Callable[..., Any]) -> Replay:
    run_id = events[0].run_id
    args, kwargs = restore_call(flow, records.created or {})
    context = Context(ReplayLog(journal, Claim(run_id, 0, events[-1].seq), records), journal, park_after_s=0.0)
    try:
        result = await context.run(lambda: call_flow(flow, context, *args, **kwargs))
        return Replay(result=result_codec(flow).encode(result, "the result of the flow")[2], is_finished=True)
    except Stopped as stopped:
        raise stopped.error from None
    except Interrupted:
        return Replay()  # it came to what is not recorded
    except Exception as error:
        return Replay(error=error, is_finished=True)


def _compare(outcome: Replay, end: Event, flow: Callable[..., Any]) -> None:
    if not outcome.is_finished:
        raise Nondeterminism("The run was over, but the code now asks for more than its journal has.")
    if end.kind == EventKind.RUN_COMPLETED:
        if outcome.error is not None:
            raise Nondeterminism(f"The run was completed, but the code now fails: {outcome.error!r}.")
        recorded = end.payload.get("result")
        if result_codec(flow).encode(outcome.result, "the result of the flow")[0] != recorded:
            raise Nondeterminism(f"The run returned {recorded!r}, the code now {outcome.result!r}.")
    elif outcome.error is None:
        raise Nondeterminism(f"The run failed, but the code now returns {outcome.result!r}.")


def _read(path: Path) -> list[Event]:
    try:
        events = [Event.from_dict(json.loads(line)) for line in path.read_text().splitlines() if line.strip()]
    except (OSError, ValueError, AttributeError, PayloadInvalid) as error:
        raise ConfigInvalid(
            f"{path} holds no journal: {error}.", hint="Record one: holdfast runs events ID --json > FILE"
        ) from error
    if len({event.run_id for event in events}) != 1 or not any(e.kind == EventKind.RUN_CREATED for e in events):
        raise ConfigInvalid(f"{path} does not hold the whole journal of one run.")
    return events
