"""The folds that every reader of a run shares: where it stands, its calls, its money."""

from typing import Any

import pytest

from holdfast.enums import RunPhaseState, RunStatus
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.run_fold.calls import CallLog, CallStatus
from holdfast.runtime.run_fold.event_fold import EventFold, find_tree, to_lane
from holdfast.runtime.run_fold.money import RunMoney
from holdfast.runtime.run_fold.progress import RunProgress


def event(kind: str, lane: str = "main", *, seq: int = 1, ts: float = 1.0, **payload: Any) -> Event:
    return Event(run_id="r", seq=seq, ts=ts, kind=kind, lane_id=lane, payload=payload)


def feed(fold: EventFold, *events: Event) -> None:
    for each in events:
        fold.add(each)


@pytest.mark.parametrize(
    ("made", "lane"),
    [
        (event("phase.started", "plan/2/turn1"), ("plan", 2)),
        (event("phase.started", "main", phase="plan", attempt_no=3), ("plan", 3)),
        (event("run.paused"), ("", 1)),
        (event("phase.started", "main", phase=["plan"], attempt="many"), ("", 1)),
    ],
)
def test_phase_and_attempt_come_from_the_lane_or_else_from_the_payload(made: Event, lane: tuple[str, int]) -> None:
    assert to_lane(made) == lane


def test_the_files_of_an_event_are_those_of_its_result_first() -> None:
    assert find_tree(event("tool.result", tree="a", result={"tree": "b"})) == "b"
    assert find_tree(event("run.created", tree="a", result=[1])) == "a"
    assert find_tree(event("run.created", tree=7)) is None


def test_a_phase_whose_call_waits_for_a_person_runs_on_after_the_answer() -> None:
    progress = RunProgress(["plan", "build"])
    feed(progress, event(EventKind.PHASE_STARTED, "plan/2"), event(EventKind.PHASE_STARTED, "build/1"))
    feed(
        progress,
        event(EventKind.HUMAN_APPROVAL_REQUESTED, "plan/2/turn1", about="tool"),
        event(EventKind.HUMAN_APPROVAL_REQUESTED, "build/1", about="phase"),
        event(EventKind.HUMAN_APPROVAL_RECEIVED, "plan/2/turn1"),
        event(EventKind.HUMAN_APPROVAL_RECEIVED, "build/1"),
    )

    plan, build = progress.phases.values()
    assert (plan.state, plan.attempt) == (RunPhaseState.RUNNING, 2)
    assert build.state == RunPhaseState.AWAITING_APPROVAL


def test_a_run_stands_still_while_it_waits_and_says_why() -> None:
    progress = RunProgress()
    feed(progress, event(EventKind.RUN_STARTED), event(EventKind.RUN_PAUSED, reason="budget"))
    assert (progress.status, progress.pause_reason, progress.is_still) == (RunStatus.PAUSED, "budget", True)

    feed(progress, event(EventKind.RUN_RESUMED))
    assert (progress.status, progress.pause_reason, progress.is_still) == (RunStatus.RUNNING, "", False)


def test_a_try_that_failed_leaves_a_call_open_and_nothing_in_flight() -> None:
    log = CallLog()
    feed(log, event(EventKind.TOOL_STARTED, "plan/1/turn1", key="k", tool="execute"))
    call = log.by_key["k"]
    assert (call.state, call.is_in_flight) == (CallStatus.OPEN, True)

    feed(log, event(EventKind.TOOL_ERROR, "plan/1/turn1", key="k", retry_at=9.0))
    assert (call.state, call.is_in_flight, log.find_open()) == (CallStatus.OPEN, False, call)

    feed(log, event(EventKind.TOOL_STARTED, "plan/1/turn1", key="k"), event(EventKind.RUN_FAILED, ts=7.0))
    assert (call.state, call.until, call.tries, call.is_in_flight) == (CallStatus.CUT, 7.0, 2, True)


def test_money_reserved_for_a_step_is_known_by_its_last_entry_until_it_is_settled() -> None:
    money = RunMoney(CallLog())
    feed(money, event(EventKind.RUN_CREATED, budget_micros=1000))
    for entry in ("a", "b"):
        feed(money, event(EventKind.BUDGET_RESERVED, "plan/1", entry=entry, step="m0", amount_micros=100))
    assert (money.entry_of_step, money.reserved_micros) == ({"m0": "b"}, 200)

    feed(money, event(EventKind.BUDGET_SETTLED, "plan/1", entry="b", step="m0", amount_micros=40))
    feed(money, event(EventKind.BUDGET_RAISED, phase="plan", amount_micros=500))
    assert (money.entry_of_step, money.cost_micros, money.phase_micros("plan")) == ({}, 140, 140)
    assert (money.limit_micros, money.raised_micros["plan"]) == (1500, 500)


def _message(content: str, **more: Any) -> dict[str, Any]:
    return {"value": {"$msg": ["ToolMessage", {"content": content, **more}]}}


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        ({**_message("Denied: sudo takes rights", status="error"), "refused": True}, "denied"),
        (_message("no_such_tool is no tool", status="error"), "failed"),
        (_message("ls: cannot access", artifact={"exit_code": 2}), "exit 2"),
        (_message("(no output)\n[Command failed with exit code 3]"), "exit 3"),
        ({"exit_code": 1, "output": "no"}, "exit 1"),
        (_message("[Command succeeded with exit code 0]", artifact={"exit_code": 0}), ""),
        (_message("fine"), ""),
        ({"exit_code": True, "value": "x"}, ""),
        (["?"], ""),
        (None, ""),
    ],
)
def test_the_outcome_of_a_tool_call_is_read_from_its_result(result: Any, outcome: str) -> None:
    log = CallLog()

    feed(log, event("tool.started", key="k", tool="execute"), event("tool.result", seq=2, key="k", result=result))

    assert log.by_key["k"].outcome == outcome
    assert log.by_key["k"].state is (CallStatus.FAILED if outcome else CallStatus.DONE)


def test_a_command_that_went_on_by_itself_is_not_unknown() -> None:
    log = CallLog()

    for key, resolution in (("a", "reattached"), ("b", "ask")):
        feed(log, event("tool.started", key=key), event("tool.unknown", key=key, resolution=resolution))

    assert [log.by_key[key].is_unknown for key in ("a", "b")] == [False, True]
