"""The to-do lists that agents keep of their work, phase by phase."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.run_fold.event_fold import EventFold, EventTable, is_of_subagent, to_lane, to_text

TODO_TOOL = "write_todos"


class TodoStatus(StrEnum):
    """How far an entry of a list is."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


@dataclass(frozen=True)
class Todo:
    """One entry of a list."""

    content: str
    status: str


class TodoLog(EventFold):
    """The last list of each phase's own agent; a new attempt begins without one."""

    def __init__(self) -> None:
        self.by_phase: dict[str, list[Todo]] = {}

    def summarize(self, phase: str) -> str:
        """Say how far the agent of a phase is by its own list; nothing if it keeps none."""
        todos = self.by_phase.get(phase, [])
        if not todos:
            return ""
        done = sum(todo.status == TodoStatus.COMPLETED for todo in todos)
        current = next((todo.content for todo in todos if todo.status == TodoStatus.IN_PROGRESS), "")
        return f"to-do: {done} of {len(todos)} done" + (f", now: {current}" if current else "")

    def _start(self, event: Event) -> None:
        self.by_phase.pop(to_lane(event).phase, None)

    def _take(self, event: Event) -> None:
        args = event.payload.get("args")
        if event.payload.get("tool") != TODO_TOOL or not isinstance(args, Mapping) or is_of_subagent(event):
            return  # a list of a subagent is about its part of the work
        todos = args.get("todos")
        entries = [_to_todo(entry) for entry in todos if isinstance(entry, Mapping)] if isinstance(todos, list) else []
        if written := [todo for todo in entries if todo.content and todo.status in set(TodoStatus)]:
            self.by_phase[to_lane(event).phase] = written

    TABLE: ClassVar[EventTable] = {EventKind.PHASE_STARTED: _start, EventKind.TOOL_RESULT: _take}


def _to_todo(entry: Mapping[str, Any]) -> Todo:
    return Todo(" ".join(to_text(entry.get("content")).split())[:200], to_text(entry.get("status")))
