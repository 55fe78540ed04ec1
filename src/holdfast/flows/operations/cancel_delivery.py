"""How a cancellation reaches the code of a flow that has something to undo: at one place, which is recorded.

Rule: a replay meets the cancellation where the first execution met it, so that the same compensations run.
"""

import asyncio

from holdfast.flows.lane import LaneCursor, Operation
from holdfast.runtime.events import EventKind
from holdfast.runtime.run_log import RunLog
from holdfast.runtime.step import CancelRun


async def deliver(log: RunLog, lane: LaneCursor, what: Operation, request: CancelRun | None = None) -> CancelRun:
    """Record that the cancellation has reached this lane at an operation, and return what is raised there."""
    lane.requests_met = log.records.cancel_requests
    if request is None:
        facts = log.records.cancel_request or {}
        request = CancelRun(facts.get("reason", ""), facts.get("by", ""))
    is_recorded = lane.position < len(lane.recorded) and lane.recorded[lane.position].type == "cancel"
    if is_recorded:
        lane.position += 1
    elif lane.cancelled is None:
        key = f"{lane.prefix}cancel"
        result = {"at": list(what), "reason": request.reason, "by": request.by}
        await log.append(log.event(EventKind.CANCEL_DELIVERED, lane.lane_id, key=key, result=result))
        # crash: before this, whoever goes on delivers it where it finds nothing recorded; after it, here.
    return lane.cancel(request)


def is_requested(log: RunLog, lane: LaneCursor) -> bool:
    """Tell a request that has cancelled the task in this lane from a shutdown; where both can be, it is noted."""
    if log.interrupts <= lane.requests_met:
        log.is_shut_down = log.is_shut_down or log.records.cancel_request is not None
        return False
    return not log.is_shut_down


def forget_cancellation() -> None:
    """Undo the request that cancelled the task, which has done its work: what compensates must not look cancelled."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        task.uncancel()
