"""The keys of an agent's calls: the lane, and how many of the kind came before. Light: nothing of the framework.

    phase/attempt/m3        the fourth model call of a lane
    phase/attempt/m3.t0     the first tool call in its answer; a subagent in it has this key as its lane
    phase/attempt/s0        a question beside the conversation, such as one for a summary
    phase/attempt/x0        a tool call that no journaled model made
    phase/attempt/inbox3    the messages that come in before `m3`

A replay counts the same way, so a key must not depend on anything but the order of calls within its lane.
"""

from collections import Counter
from contextvars import ContextVar

from holdfast.agents.calls.in_flight import InFlight

_inside: ContextVar[tuple["LaneKeys", str] | None] = ContextVar("holdfast_agent_lane", default=None)


def inbox_key(lane_id: str, number: int) -> str:
    """Return the key of the step that brings messages before the model call of this number."""
    return f"{lane_id}/inbox{number}"


def model_key(lane_id: str, number: int) -> str:
    """Return the key of a lane's model call of this number."""
    return f"{lane_id}/m{number}"


def tool_key(asking_key: str, position: int) -> str:
    """Return the key of the tool call at this position in the answer of a model call."""
    return f"{asking_key}.t{position}"


class LaneKeys:
    """Counts the calls of one middleware's lanes: its own, and those of the subagents inside its tool calls."""

    def __init__(self, lane_id: str, in_flight: InFlight) -> None:
        self.lane_id = lane_id
        self._in_flight = in_flight
        self._counts: Counter[tuple[str, str]] = Counter()

    def enter_tool_call(self, key: str) -> None:
        """Make a tool call's key the lane of whatever the current task does from here on."""
        _inside.set((self, key))

    def current_lane(self) -> str:
        """Return the lane of the current task. Raises if that lane must not go on in this process."""
        inside = _inside.get()
        lane_id = inside[1] if inside is not None and inside[0] is self else self.lane_id
        self._in_flight.check(lane_id)
        return lane_id

    def is_subagent(self, lane_id: str) -> bool:
        return lane_id != self.lane_id

    def next_model_key(self, lane_id: str) -> str:
        return model_key(lane_id, self._count(lane_id, "m"))

    def next_aside_key(self, lane_id: str) -> str:
        return f"{lane_id}/s{self._count(lane_id, 's')}"

    def next_stand_in_key(self, lane_id: str) -> str:
        return f"{lane_id}/x{self._count(lane_id, 'x')}"

    def _count(self, lane_id: str, kind: str) -> int:
        self._counts[lane_id, kind] += 1
        return self._counts[lane_id, kind] - 1
