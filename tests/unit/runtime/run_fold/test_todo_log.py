"""The to-do list of a phase, as people see it while its agent works."""

from typing import Any

from holdfast.runtime.events import Event, EventKind, create_event
from holdfast.runtime.run_fold.todo_log import TodoLog


def write(lane_id: str, *entries: tuple[str, str]) -> Event:
    todos = [{"content": content, "status": status} for content, status in entries]
    payload: dict[str, Any] = {"tool": "write_todos", "args": {"todos": todos}}
    return create_event("r", EventKind.TOOL_RESULT, lane_id=lane_id, **payload)


def test_the_list_is_that_of_the_phases_agent_and_not_of_its_subagents() -> None:
    log = TodoLog()

    log.add(write("build.two/1/turn1", ("Read", "completed"), ("Write", "in_progress")))
    log.add(write("build.two/1/turn1/m0.t1", ("Search", "in_progress")))

    assert log.summarize("build.two") == "to-do: 1 of 2 done, now: Write"


def test_a_new_attempt_begins_without_a_list() -> None:
    log = TodoLog()

    log.add(write("build/1/turn1", ("Read", "pending")))
    log.add(create_event("r", EventKind.PHASE_STARTED, lane_id="build/2"))

    assert log.summarize("build") == ""
