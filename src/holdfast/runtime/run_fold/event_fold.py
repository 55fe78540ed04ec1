"""What every fold over a run's events is made of: a table by kind, and the lane, files, texts and numbers of an event.

Each fold answers one question: where a run stands (`progress`), its calls (`calls`), its money (`money`). `add` takes
the next event and looks up in a table which method is for its kind, so an event costs the same however long the journal
is. The trace, the views on the terminal and the engine's history are built from these folds and do not read the same
kinds again.

Rule: a fold takes any order a journal can hold, any kind it does not know and any payload. Whoever feeds it gives it an
event only once.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

from holdfast.runtime.events import Event

EventTable = Mapping[str, Callable[[Any, Event], None]]


class Lane(NamedTuple):
    """The phase and the attempt that an event belongs to; the phase is empty for one of the whole run."""

    phase: str
    attempt: int


def to_lane(event: Event) -> Lane:
    """Read phase and attempt from a lane such as `plan/2/turn1`, or from the payload."""
    phase, _, rest = str(event.lane_id or "").partition("/")
    number = rest.partition("/")[0]
    if number.isdigit():
        return Lane(phase, int(number))
    attempt = event.payload.get("attempt_no", event.payload.get("attempt"))
    return Lane(to_text(event.payload.get("phase")), round(to_number(attempt)) or 1)


def is_of_subagent(event: Event) -> bool:
    """Tell whether an event is of a subagent, whose lane is the key of the tool call that started it."""
    return ".t" in str(event.lane_id or "").partition("/")[2]


def find_tree(event: Event) -> str | None:
    """Return the id of the files that an event was recorded with, if it was."""
    result = event.payload.get("result")
    tree = (result.get("tree") if isinstance(result, dict) else None) or event.payload.get("tree")
    return tree if isinstance(tree, str) and tree else None


def to_text(value: Any) -> str:
    """Return a value of a payload that should be a text; nothing where it is none."""
    return value if isinstance(value, str) else ""


def to_number(value: Any) -> float:
    """Return a value of a payload that should be a number; 0 where it is none."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0


class EventFold:
    """Takes events one after the other. `TABLE` has the method for each kind; other kinds change nothing."""

    TABLE: ClassVar[EventTable] = {}

    def add(self, event: Event) -> None:
        take = self.TABLE.get(event.kind)
        if take is not None:
            take(self, event)
