"""What a flow tells its watchers: log lines, a status text, partial results. Written once, however often it replays.

Rule: notes have no place in the order of a lane, so that they can be added to and removed from code at any time.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from holdfast.flows.lane import LaneCursor
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.jsondata import to_json
from holdfast.runtime.run_log import RunLog
from holdfast.runtime.step import Interrupted


def note(
    log: RunLog,
    lane: LaneCursor,
    loop: asyncio.AbstractEventLoop,
    kind: EventKind,
    content: dict[str, Any],
    *,
    is_passed: Callable[[LaneCursor], bool],
) -> None:
    """Write a note with the next append, unless it is recorded or its place was passed by an earlier process."""
    plain = to_json(content, f"what {kind} holds")[1]
    lane.notes += 1
    recorded = log.records.notes.get((lane.lane_id, lane.last_key), 0)
    if lane.notes <= recorded or is_passed(lane):
        return
    # crash: a note that did not reach the journal is made again, by the code that comes to its place again.
    event = log.event(kind, lane.lane_id, after=lane.last_key, **plain)
    try:
        is_on_loop = asyncio.get_running_loop() is loop
    except RuntimeError:
        is_on_loop = False  # a step's function in a thread
    if is_on_loop:
        log.defer(event)
    else:
        loop.call_soon_threadsafe(_defer, log, event)


def _defer(log: RunLog, event: Event) -> None:
    with contextlib.suppress(Interrupted):  # the flow is over, while the function in its thread is not
        log.defer(event)
