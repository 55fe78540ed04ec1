"""What a process knows of a run when it takes it over: tries, files to start from, commands and money left open."""

from typing import Any

from holdfast.engine.history import History
from holdfast.runtime.events import Event


def history(*events: tuple[str, str, dict[str, Any]]) -> History:
    return History.of(
        Event(run_id="r", seq=seq, ts=float(seq), kind=kind, lane_id=lane, payload=payload)
        for seq, (kind, lane, payload) in enumerate(events, 1)
    )


def started(n: int, tree: str) -> tuple[str, str, dict[str, Any]]:
    return "phase.started", f"plan/{n}", {"phase": "plan", "attempt_no": n, "result": {"tree": tree}}


def test_a_phase_that_a_person_retries_starts_from_the_files_of_its_last_attempt() -> None:
    known = history(
        started(1, "t1"),
        ("phase.failed", "plan/1", {"phase": "plan", "is_retried": True}),
        started(2, "t2"),
        ("phase.failed", "plan/2", {"phase": "plan"}),
        ("run.failed", "main", {}),
        ("run.resumed", "main", {"after": "failed"}),
    )

    assert (known.restore_to, known.accepted_tree, known.last_attempt) == ({"plan": "t2"}, {"plan": "t1"}, {"plan": 2})
    assert (known.failures["plan"], known.retried_at, known.last_tree) == (0, 6, "t2")


def test_commands_without_an_outcome_are_known_also_after_the_run_has_ended() -> None:
    known = history(
        started(1, "t1"),
        ("tool.started", "plan/1/check1", {"key": "plan/1/check1", "tool": "command"}),
        ("tool.started", "plan/1/turn1", {"key": "plan/1/turn1/a", "tool": "execute"}),
        ("tool.started", "plan/1/turn1", {"key": "plan/1/turn1/b", "tool": "execute"}),
        ("tool.error", "plan/1/turn1", {"key": "plan/1/turn1/b", "tool": "execute", "retry_at": 9.0}),
        ("tool.started", "plan/1/turn1", {"key": "plan/1/turn1/c", "tool": "grep"}),
        ("run.cancelled", "main", {}),
    )

    assert known.commands == {"plan/1/check1"}
    assert known.agent_commands == {"r:plan/1/turn1/a"}


def test_a_change_to_the_run_leaves_the_commands_of_the_attempt_that_it_ended() -> None:
    known = history(
        started(1, "t1"),
        ("tool.started", "plan/1/turn1", {"key": "plan/1/turn1/a", "tool": "execute"}),
        ("tool.started", "build/1/turn1", {"key": "build/1/turn1/a", "tool": "execute"}),
        ("phase.reopened", "plan/1", {"phase": "plan", "reason": "run_changed"}),
    )

    assert known.left_commands == {"r:plan/1/turn1/a"}
    assert known.restore_to == {"plan": "t1"}


def test_money_that_was_reserved_and_not_settled_is_found_by_its_step() -> None:
    known = history(
        ("budget.reserved", "plan/1", {"step": "m0", "entry": "a", "amount_micros": 5}),
        ("budget.reserved", "plan/1", {"step": "m1", "entry": "b", "amount_micros": 5}),
        ("budget.settled", "plan/1", {"step": "m0", "entry": "a", "amount_micros": 4}),
        ("budget.raised", "main", {"phase": "plan", "amount_micros": 70}),
        ("run.resume.requested", "main", {"accept_drift": True}),
    )

    assert known.reservations == {"m1": "b"}
    assert (known.raised_micros["plan"], known.accepts_drift) == (70, True)


def test_phases_that_were_under_way_are_known_to_who_takes_the_run_over() -> None:
    known = history(
        started(1, "t1"),
        ("phase.started", "docs/1", {"phase": "docs", "attempt_no": 1}),
        ("phase.started", "tests/1", {"phase": "tests", "attempt_no": 1}),
        ("phase.completed", "docs/1", {"phase": "docs"}),
        ("phase.failed", "plan/1", {"phase": "plan", "is_retried": True}),
    )

    assert known.open_phases == {"tests"}


BIG = ("tool.result", "plan/1/turn1", {"key": "plan/1/turn1/a", "result": {"not_carried": ["big.bin"]}})
CARRIED = ("workspace.carried", "main", {"tree": "t9"})


def test_only_files_that_nothing_was_recorded_after_keep_a_run_in_its_place() -> None:
    assert history(BIG).needs_files_of_place
    assert not history(BIG, CARRIED).needs_files_of_place
    assert history(BIG, CARRIED, BIG).files_of_place == ("big.bin",)


def test_a_phase_that_starts_from_other_files_does_not_keep_a_run_in_its_place() -> None:
    failed = ("phase.failed", "plan/1", {"phase": "plan"})
    tried_again = ("phase.failed", "plan/1", {"phase": "plan", "is_retried": True})
    changed = ("phase.reopened", "plan/1", {"phase": "plan", "reason": "run_changed"})
    retried = ("run.resumed", "main", {"after": "failed"})

    assert not history(started(1, "t1"), BIG, failed).needs_files_of_place
    assert not history(started(1, "t1"), BIG, failed, retried).needs_files_of_place
    assert not history(started(1, "t1"), BIG, changed).needs_files_of_place
    assert history(started(1, "t1"), BIG, tried_again).needs_files_of_place


def test_what_becomes_of_one_phase_does_not_let_another_go_on_without_its_files() -> None:
    beside = ("phase.started", "docs/1", {"phase": "docs", "attempt_no": 1, "result": {"tree": "t1"}})
    failed = ("phase.failed", "docs/1", {"phase": "docs"})
    changed = ("phase.reopened", "docs/1", {"phase": "docs", "reason": "run_changed"})
    retried = ("run.resumed", "main", {"after": "failed"})
    also_big = ("tool.result", "docs/1/turn1", {"key": "docs/1/turn1/a", "result": {"not_carried": ["other.bin"]}})

    assert history(started(1, "t1"), beside, BIG, failed).needs_files_of_place
    assert history(started(1, "t1"), beside, BIG, failed, retried).needs_files_of_place
    assert history(started(1, "t1"), beside, BIG, changed).needs_files_of_place
    assert history(started(1, "t1"), beside, BIG, also_big, failed).files_of_place == ("big.bin",)
