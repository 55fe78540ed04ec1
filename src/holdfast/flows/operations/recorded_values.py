"""Values that differ each time they are made, and are therefore recorded: the time, a random number, a UUID.

Rule: such a value is in the journal before the flow gets it, since a step may hand it to the world.
"""

import random
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from holdfast.flows.lane import LaneCursor
from holdfast.runtime.events import EventKind
from holdfast.runtime.run_log import RunLog

_system_random = random.SystemRandom()


async def record(log: RunLog, lane: LaneCursor, key: str, make: Callable[[], Any]) -> Any:
    """Return the recorded value of this place, or make one, JSON data, and record it."""
    found = log.find("value", key, {})
    if found is not None:
        return found.result
    value = make()
    event = log.event(EventKind.VALUE_RECORDED, lane.lane_id, key=key, result=value)
    await log.append(event)
    # crash: the flow has not seen the value before this line; with it recorded, it never sees another.
    return value


def new_number() -> float:
    return _system_random.random()


def new_uuid() -> str:
    return str(uuid.uuid4())


def to_datetime(epoch_s: float) -> datetime:
    return datetime.fromtimestamp(epoch_s, UTC)


def to_uuid(text: str) -> uuid.UUID:
    return uuid.UUID(text)
