"""Version markers: which way a run takes where the code has changed, decided once and recorded.

Rule: a marker has no place in the order of a lane. A run that came past it before the marker was written keeps the old
way; code that no longer asks for a recorded marker is still the same code, so that markers can be removed.

What a lane has decided holds for the lanes that it opens, but not the other way round: which of two lanes asks first is
chance.
"""

from holdfast.flows.lane import LaneCursor
from holdfast.runtime.events import EventKind
from holdfast.runtime.run_log import RunLog


async def decide(log: RunLog, lane: LaneCursor, name: str, *, is_passed: bool) -> bool:
    """Return the recorded answer of a marker in this lane, or record it now."""
    key = f"{lane.prefix}{name}"
    record = log.records.by_key.get(("version", key))
    if record is None:
        is_new = not is_passed
        await log.append(log.event(EventKind.VERSION_MARKED, lane.lane_id, key=key, result=is_new))
        # crash: nothing of either way is recorded before the marker is.
    else:
        is_new = bool(record.result)
    lane.versions[name] = is_new
    return is_new
