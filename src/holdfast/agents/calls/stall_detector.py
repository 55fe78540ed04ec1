"""Whether an agent still gets somewhere: how many turns it took, how long it worked, whether it goes in circles.

A fold over what was recorded, so that a replay comes to the same advice at the same place. A turn that brings nothing
new is one whose calls, arguments and results were all seen before while no file changed, or which failed with the very
errors of the turn before it.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from holdfast.agents.tools.rules import ToolCall
from holdfast.enums import PauseReason
from holdfast.runtime.events import Event, EventKind, create_event
from holdfast.runtime.jsondata import to_json
from holdfast.runtime.step import Suspended

NUDGE = (
    "You have made the same calls several times and got the same results, and no file has changed since. Do not repeat "
    "them. Say in one sentence what is in the way, then try something else, or end with what you have."
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one lane. `max_work_s` counts what calls took, over all processes; the last three count turns in a row that
    brought nothing new."""

    max_turns: int = 400
    max_work_s: float | None = None
    nudge_after: int = 2
    fallback_after: int = 4
    stop_after: int = 6


class Advice(Enum):
    GO_ON = "go on"
    NUDGE = "nudge"
    FALL_BACK = "fall back"
    STOP = "stop"


class Stalled(Suspended):
    """The agent gets nowhere, and a person should look. `facts` hold the diagnosis."""

    reason = PauseReason.STALLED

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts

    def events(self, run_id: str) -> list[Event]:
        return [create_event(run_id, EventKind.AGENT_PROGRESS, stalled=str(self), **self.facts)]


@dataclass
class _LaneHistory:
    turns: int = 0
    results: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """Of the turn under way, by step: the call, its result, and the error if it is one."""
    seen: set[str] = field(default_factory=set)
    tree: str = ""
    has_new_tree: bool = False
    worked_s: float = 0.0
    longest_s: float = 0.0
    """Of the calls of the turn under way, which run beside each other."""
    often: Counter[str] = field(default_factory=Counter)
    repeats: int = 0
    same_errors: int = 0
    last_errors: tuple[str, ...] = ()


class StallDetector:
    """Watches the lanes of one journal, each by itself: in which order parallel ones come is chance."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lanes: dict[str, _LaneHistory] = {}

    def note_answer(self, lane_id: str, recorded: Any) -> None:
        """Count the time of a model's recorded answer."""
        self._get_lane(lane_id).worked_s += _took_s(recorded)

    def note_result(self, lane_id: str, key: str, call: ToolCall, recorded: Any) -> None:
        """Count a tool's result for the turn under way; `recorded` is what the journal holds of it."""
        lane = self._get_lane(lane_id)
        recorded = recorded if isinstance(recorded, dict) else {"value": recorded}
        tree = recorded.get("tree")
        if isinstance(tree, str) and tree != lane.tree:
            lane.tree, lane.has_new_tree = tree, True
        lane.longest_s = max(lane.longest_s, _took_s(recorded))
        request = _digest([call.name, {name: str(value) for name, value in call.args.items()}])
        lane.often[f"{call.name} {_shorten(call.args)}"] += 1
        status, text = _read_outcome(recorded.get("value"))
        lane.results[key] = (request, _digest(text), _digest(text) if status == "error" else "")

    def advise(self, lane_id: str) -> Advice:
        """Close the turn and say what to do before the next model call of a lane; to be called once for each."""
        lane, limits = self._get_lane(lane_id), self._limits
        self._close_turn(lane)
        lane.turns += 1
        stuck = max(lane.repeats, lane.same_errors)
        if stuck >= limits.stop_after or lane.turns > limits.max_turns:
            return Advice.STOP
        if stuck >= limits.fallback_after:
            return Advice.FALL_BACK
        return Advice.NUDGE if stuck >= limits.nudge_after else Advice.GO_ON

    def is_out_of_time(self, lane_id: str) -> bool:
        limit = self._limits.max_work_s
        return limit is not None and self._get_lane(lane_id).worked_s > limit

    def forgive(self, lane_id: str) -> None:
        """Count anew: a person has seen the stall and let the agent go on."""
        lane = self._get_lane(lane_id)
        lane.turns = 1
        lane.repeats = lane.same_errors = 0
        lane.seen.clear()

    def diagnose(self, lane_id: str) -> dict[str, Any]:
        lane = self._get_lane(lane_id)
        calls = [{"call": call, "times": times} for call, times in lane.often.most_common(3)]
        return {"turns": lane.turns - 1, "repeated": lane.repeats, "same_errors": lane.same_errors, "calls": calls}

    def _get_lane(self, lane_id: str) -> _LaneHistory:
        return self._lanes.setdefault(lane_id, _LaneHistory())

    def _close_turn(self, lane: _LaneHistory) -> None:
        if not lane.results:
            return
        results = [lane.results[key] for key in sorted(lane.results)]
        lane.results = {}
        lane.worked_s += lane.longest_s
        lane.longest_s = 0.0
        if lane.has_new_tree:
            lane.has_new_tree, lane.repeats = False, 0
            lane.seen.clear()
        turn = _digest([list(result) for result in results])
        lane.repeats = lane.repeats + 1 if turn in lane.seen else 0
        lane.seen.add(turn)
        errors = tuple(sorted(error for _, _, error in results))
        is_same = all(errors) and errors == lane.last_errors
        lane.same_errors = lane.same_errors + 1 if is_same else 0
        lane.last_errors = errors


def describe_stall(diagnosis: Mapping[str, Any]) -> str:
    """Say in one line, for a person, what a diagnosis holds."""
    repeated = ", ".join(f"{call['times']} × {call['call']}" for call in diagnosis["calls"] if call["times"] > 1)
    errors = " The same errors came again and again." if diagnosis["same_errors"] > diagnosis["repeated"] else ""
    return f"The agent gets nowhere after {diagnosis['turns']} turns: {repeated or 'no call is repeated'}.{errors}"


def _read_outcome(value: Any) -> tuple[str, Any]:
    """Return status and content of a recorded tool message; anything else is a success with itself as the content."""
    message = value.get("$msg") if isinstance(value, dict) else None
    if isinstance(message, list) and len(message) == 2 and isinstance(message[1], dict):
        return str(message[1].get("status", "success")), message[1].get("content")
    return "success", value


def _took_s(recorded: Any) -> float:
    took_s = recorded.get("took_s") if isinstance(recorded, dict) else None
    return float(took_s) if isinstance(took_s, int | float) else 0.0


def _digest(data: Any) -> str:
    return hashlib.sha256(to_json(data)[0]).hexdigest()[:16]


def _shorten(args: Any) -> str:
    return ", ".join(f"{name}={str(value)[:60]}" for name, value in args.items())[:200]
