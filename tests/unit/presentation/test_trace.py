"""Events folded into attempts, calls, turning points and money; and the rows that are drawn of them."""

from typing import Any

from holdfast.presentation.status import PhaseFacts, RunFacts
from holdfast.presentation.timeline import MAX_STEPS, PhaseDetails, Row, draw_timeline
from holdfast.presentation.trace import RunTrace
from holdfast.runtime.events import Event


def fold_trace(*events: tuple[float, str, str, dict[str, Any]]) -> RunTrace:
    return RunTrace.of(
        Event(run_id="r", seq=seq, ts=ts, kind=kind, lane_id=lane, payload=payload)
        for seq, (ts, kind, lane, payload) in enumerate(events, 1)
    )


def rows_of(known: RunTrace, *, now: float, opened: set[str] | None = None, **phase: Any) -> list[Row]:
    run = RunFacts(state="running", phases=[PhaseFacts(key="plan", **{"state": "running", **phase})])
    drawn = draw_timeline(run, known, PhaseDetails(), opened=opened or set(), now=now)
    return list(drawn.rows)


def test_an_attempt_that_waits_for_a_person_is_told_apart_from_work() -> None:
    known = fold_trace(
        (0, "run.created", "main", {}),
        (1, "phase.started", "plan/1", {}),
        (5, "human.approval.requested", "plan/1", {}),
        (5.1, "run.paused", "main", {"reason": "approval"}),
        (100, "human.approval.received", "plan/1", {"action": "approve"}),
        (101, "run.resumed", "main", {"after": "paused"}),
        (102, "phase.completed", "plan/1", {}),
    )

    (attempt,) = known.attempts_of("plan")
    (row,) = rows_of(known, now=200, state="completed")

    assert [(each.type, each.since, each.until) for each in attempt.segments] == [
        ("working", 1, 5),
        ("waiting", 5, 100),
        ("queued", 100, 101),
        ("working", 101, 102),
    ]
    assert attempt.state == "completed"
    assert row.summary == "plan: completed, worked 5.0 s, waited 1 min 35 s, queued 1.0 s"
    assert (row.seconds, row.live_since) == (101, None)
    assert known.find_busy() == [(1, 5), (101, 102)]


def test_a_crash_is_marked_where_the_last_event_was_and_a_first_start_is_no_return() -> None:
    known = fold_trace(
        (0, "run.resumed", "main", {"after": "pending"}),
        (1, "phase.started", "plan/1", {}),
        (2, "model.request", "plan/1/turn1", {"key": "m0", "model": "m"}),
        (60, "run.resumed", "main", {"after": "running", "taken_over": True}),
        (61, "model.response", "plan/1/turn1", {"key": "m0", "result": {}}),
    )

    assert [(mark.type, mark.ts) for mark in known.milestones] == [("crash", 2), ("resumed", 60)]
    assert [each.type for each in known.attempts_of("plan")[0].segments] == ["working", "down", "working"]
    assert known.find_open_call() is None
    (row,) = rows_of(known, now=70)
    assert (row.live_since, row.bars[-1].until) == (60, None)


def test_who_resumes_does_not_work_on_what_still_waits_for_an_answer() -> None:
    known = fold_trace(
        (1, "phase.started", "plan/1", {}),
        (1, "phase.started", "style/1", {}),
        (5, "human.approval.requested", "plan/1", {}),
        (60, "run.resumed", "main", {"after": "running"}),
        (70, "phase.completed", "style/1", {}),
    )

    (waiting,), (done,) = known.attempts_of("plan"), known.attempts_of("style")
    assert [each.type for each in waiting.segments] == ["working", "waiting", "down", "waiting"]
    assert (waiting.is_working, waiting.worked_s(100)) == (False, 4)
    assert (done.is_working, done.worked_s(100)) == (False, 14)


def test_a_call_answered_where_it_was_asked_goes_on_at_once() -> None:
    known = fold_trace(
        (1, "phase.started", "plan/1", {}),
        (2, "human.approval.requested", "plan/1/turn1", {"about": "tool"}),
        (3, "human.approval.received", "plan/1/turn1", {"action": "approve"}),
        (3.5, "tool.started", "plan/1/turn1", {"key": "k", "tool": "execute"}),
    )

    (attempt,) = known.attempts_of("plan")
    assert [each.type for each in attempt.segments] == ["working", "waiting", "queued", "working"]
    assert attempt.worked_s(10) == 7.5


def test_a_tool_result_without_a_start_knows_when_it_began_by_how_long_it_took() -> None:
    known = fold_trace((10, "tool.result", "plan/1/turn1", {"key": "k", "tool": "ls", "result": {"took_s": 2}}))

    step = known.calls.by_key["k"]
    assert (step.since, step.until, step.state, step.start_seq, step.end_seq) == (8, 10, "done", 1, 1)


def test_money_is_counted_by_phase_and_model_and_what_was_never_answered_stays_reserved() -> None:
    settled = {"entry": "1", "step": "a", "amount_micros": 40, "input_tokens": 7, "output_tokens": 3}
    known = fold_trace(
        (1, "model.request", "plan/1/turn1", {"key": "a", "model": "big"}),
        (1, "budget.reserved", "plan/1", {"entry": "1", "step": "a", "amount_micros": 500}),
        (2, "budget.settled", "plan/1", settled),
        (3, "budget.reserved", "plan/1", {"entry": "2", "step": "b", "amount_micros": 500}),
    )

    assert (known.money.total.micros, known.money.reserved_micros, known.money.by_phase["plan"].micros) == (40, 500, 40)
    assert vars(known.money.by_model["big"]) == {"micros": 40, "calls": 1, "input_tokens": 7, "output_tokens": 3}
    assert known.calls.by_key["a"].micros == 40


def test_an_event_that_was_seen_is_not_counted_again_and_garbage_does_no_harm() -> None:
    known = RunTrace()
    one = Event(run_id="r", seq=5, ts=1.0, kind="phase.started", lane_id="plan/1")
    known.extend([one, one])
    kinds = ["phase.completed", "tool.result", "budget.settled", "run.resumed", "human.approval.received", "new.kind"]
    for seq, kind in enumerate(kinds, 6):
        wrong: Any = {"key": 7, "entry": [], "amount_micros": "many", "result": 3, "error": {"code": None}, "args": [1]}
        known.add(Event(run_id="r", seq=seq, ts=2.0, kind=kind, lane_id="", payload=wrong))

    assert list(known.attempts.by_lane) == [("plan", 1)]
    assert known.last_seq == 11


def test_the_end_of_a_run_cuts_off_what_was_under_way() -> None:
    known = fold_trace(
        (1, "phase.started", "plan/1", {}),
        (2, "tool.started", "plan/1/turn1", {"key": "k", "tool": "ls", "args": {"path": "/src"}}),
        (3, "run.cancelled", "main", {"by": "ana", "reason": "Not needed."}),
    )

    assert (known.calls.by_key["k"].state, known.calls.by_key["k"].until, known.calls.by_key["k"].brief) == (
        "cut",
        3,
        "/src",
    )
    assert known.attempts_of("plan")[0].state == "aborted"
    assert known.progress.cancelled == ("ana", "Not needed.")


def test_ten_thousand_calls_make_at_most_five_thousand_rows() -> None:
    calls = [(float(n), "tool.result", "plan/1/turn1", {"key": f"k{n}", "tool": "ls"}) for n in range(10_000)]
    known = fold_trace((0, "phase.started", "plan/1", {}), *calls)

    rows = rows_of(known, now=10_001, opened={"plan"})

    assert len(rows) == MAX_STEPS + 2
    assert rows[-1].label == "5000 more: see Activity"
    assert len(rows_of(known, now=10_001)) == 1


def test_a_failed_attempt_and_the_one_after_it_stand_in_one_row() -> None:
    known = fold_trace(
        (1, "phase.started", "plan/1", {}),
        (2, "tool.error", "plan/1/turn1", {"key": "k", "tool": "ls", "error": {"message": "No."}}),
        (3, "phase.failed", "plan/1", {"error": {"message": "It broke."}}),
        (5, "phase.started", "plan/2", {}),
    )

    (row, step) = rows_of(known, now=8, opened={"plan"})

    assert (row.attempts, [end.type for end in row.ends]) == (2, ["failed"])
    first, second = row.tries
    assert (first.text, first.calls, first.error) == ("Attempt 1 failed", "0 model calls, 1 tool call", "It broke.")
    assert (second.text, second.took, second.seq) == ("Attempt 2 under way", "", 4)
    assert (step.error, [end.type for end in step.ends]) == ("No.", ["failed"])


def test_a_run_that_waits_or_is_over_has_nothing_under_way() -> None:
    begun = [
        (0, "run.created", "main", {}),
        (1, "phase.started", "plan/1", {}),
        (2, "tool.started", "plan/1/turn1", {"key": "t0", "tool": "execute"}),
    ]
    paused = fold_trace(*begun, (9, "run.paused", "main", {"reason": "outcome"}))
    over = fold_trace(*begun, (9, "run.cancelled", "main", {}))

    for known, state, word, attempt in (
        (paused, "paused", "Outcome unknown", "Attempt 1 waits"),
        (over, "cancelled", "Stopped", "Attempt 1 aborted"),
    ):
        run = RunFacts(state=state, pause_reason="outcome", phases=[PhaseFacts(key="plan", state="running")])
        drawn = draw_timeline(run, known, PhaseDetails(), opened={"plan"}, now=100)
        phase, call = drawn.rows
        assert phase.status is not None
        assert phase.status.word == word
        assert [each.text for each in phase.tries] == [attempt]
        assert call.status is not None
        assert (call.status.word, call.live_since, call.seconds) == ("cut off", None, 7)


def test_a_phase_that_waited_when_its_run_ended_waits_no_longer() -> None:
    known = fold_trace((1, "phase.started", "plan/1", {}), (2, "human.approval.requested", "plan/1", {}))
    run = RunFacts(state="cancelled", phases=[PhaseFacts(key="plan", state="awaiting_approval")])

    (row,) = draw_timeline(run, known, PhaseDetails(), opened=set(), now=9).rows

    assert row.status is not None
    assert row.status.word == "Stopped"


def test_the_files_recorded_last_are_known_by_phase() -> None:
    known = fold_trace(
        (1, "run.created", "main", {"tree": "t0"}),
        (2, "phase.started", "plan/1", {"result": {"tree": "t1"}}),
        (3, "tool.result", "plan/1/turn1", {"key": "k", "result": {"tree": "t2"}}),
        (4, "phase.started", "build/1", {"result": {"tree": "t3"}}),
    )

    assert known.trees == {"plan": ("t2", 3), "build": ("t3", 4)}


def test_a_phase_says_what_contains_its_commands_and_a_command_how_to_undo_it() -> None:
    begun = [
        (1.0, "phase.started", "plan/1", {"phase": "plan"}),
        (2.0, "tool.started", "plan/1/turn1", {"key": "t0", "tool": "execute"}),
        (3.0, "tool.result", "plan/1/turn1", {"key": "t0", "tool": "execute", "result": {}}),
    ]
    contained = fold_trace((0, "run.started", "main", {"sandbox": "bubblewrap"}), *begun)
    chosen = fold_trace((0, "run.started", "main", {"sandbox": "none", "unsandboxed_by": "ann"}), *begun)
    without = fold_trace((0, "run.started", "main", {"sandbox": "none"}), *begun)
    older = fold_trace((0, "run.started", "main", {}), *begun)

    facts = [rows_of(known, now=9, opened={"plan"}) for known in (contained, chosen, without, older)]

    assert [list(rows[0].facts) for rows in facts] == [
        ["commands run in bubblewrap"],
        ["no sandbox, chosen by ann"],
        ["no sandbox on its machine: commands need approval"],
        [],
    ]
    assert list(facts[0][1].facts) == ["undo: holdfast restore RUN --before 3"]


def test_a_process_that_was_stopped_is_no_crash() -> None:
    known = fold_trace((1, "phase.started", "plan/1", {}), (60, "run.resumed", "main", {"after": "running"}))

    assert known.milestones[0].text == "The process that drove it was stopped here"
    assert [each.type for each in known.attempts_of("plan")[0].segments] == ["working", "down", "working"]


def test_only_the_end_of_a_process_makes_an_outcome_unknown() -> None:
    def marks(after: str, resolution: str, key: str = "plan/1/turn1/m0", *, has_died: bool = True) -> list[str]:
        known = fold_trace(
            (0, "run.created", "main", {}),
            (1, "phase.started", "plan/1", {}),
            (2, "human.approval.requested", "plan/1", {}),
            *([(3.0, "run.paused", "main", {"reason": "approval"})] if after == "paused" else []),
            (5, "run.resumed", "main", {"after": after, "taken_over": has_died}),
            (6, "tool.unknown", "plan/1", {"key": key, "resolution": resolution}),
        )
        return [each.type for each in known.milestones if each.type == "unknown"]

    assert marks("paused", "rerun") == []
    assert marks("running", "reattached") == []
    assert marks("running", "ask") == ["unknown"]
    assert marks("running", "rerun") == ["unknown"]
    assert marks("running", "rerun", has_died=False) == []  # as after every deployment
    assert marks("running", "ask", has_died=False) == ["unknown"]
    assert marks("running", "rerun", key="plan/1/turn1") == []  # the turn around a call, which is marked itself


def test_a_denied_call_is_no_done_one() -> None:
    known = fold_trace(
        (1, "phase.started", "plan/1", {}),
        (2, "tool.result", "plan/1", {"key": "k", "tool": "execute", "result": {"refused": True}}),
    )

    row = rows_of(known, now=9, opened={"plan"})[1]

    assert row.status is not None
    assert (row.status.tone, row.status.word) == ("bad", "denied")
    assert [end.type for end in row.ends] == ["failed"]


def test_the_calls_of_a_subagent_stand_under_the_call_that_began_it() -> None:
    lane, task = "plan/1/turn1", "plan/1/turn1/m0.t0"
    known = fold_trace(
        (1, "phase.started", "plan/1", {}),
        (2, "model.request", lane, {"key": f"{lane}/m0", "model": "m"}),
        (3, "model.response", lane, {"key": f"{lane}/m0", "result": {}}),
        (4, "tool.started", lane, {"key": task, "tool": "task"}),
        (4, "tool.started", lane, {"key": f"{lane}/m0.t1", "tool": "ls"}),
        (5, "model.request", task, {"key": f"{task}/m0", "model": "m"}),
        (6, "model.error", task, {"key": f"{task}/m0", "error": {}, "retry_at": 6}),
        (6, "model.request", task, {"key": f"{task}/m0", "model": "m"}),
        (7, "tool.started", task, {"key": f"{task}/m0.t0", "tool": "read_file"}),
    )

    _, *rows = rows_of(known, now=9, opened={"*"})

    assert [(row.key.removeprefix(lane), row.depth) for row in rows] == [
        ("/m0", 0),
        ("/m0.t0", 0),
        ("/m0.t0/m0", 1),
        ("/m0.t0/m0.t0", 1),
        ("/m0.t1", 0),
    ]
    assert rows[2].attempts == 2


def _answer(*calls: dict[str, Any], **usage: int) -> dict[str, Any]:
    return {"usage": usage, "value": {"$mr": {"result": [{"$msg": ["AIMessage", {"tool_calls": list(calls)}]}]}}}


def test_a_subagent_at_work_stands_with_its_name_before_the_call_that_began_it_is_recorded() -> None:
    lane, task = "plan/1/turn1", "plan/1/turn1/m0.t1"
    args = {"description": "Read the README", "subagent_type": "reader"}
    events = (
        (1, "phase.started", "plan/1", {}),
        (2, "model.request", lane, {"key": f"{lane}/m0", "model": "m"}),
        (3, "model.response", lane, {"key": f"{lane}/m0", "result": _answer({}, {"name": "task", "args": args})}),
        (4, "model.request", task, {"key": f"{task}/m0", "model": "m"}),
        (
            5,
            "model.response",
            task,
            {"key": f"{task}/m0", "result": _answer({"name": "ls"}, input_tokens=12_100, output_tokens=820)},
        ),
        (6, "tool.result", task, {"key": f"{task}/m0.t0", "tool": "ls", "result": {}}),
    )
    end = (9, "tool.result", lane, {"key": task, "tool": "task", "args": args, "result": {"took_s": 5.5}})

    _, _, live, model, tool = rows_of(fold_trace(*events), now=9, opened={"*"})
    _, _, done, *inside = rows_of(fold_trace(*events, end), now=9, opened={"*"})

    assert (live.label, live.brief, live.depth, live.has_steps) == ("subagent reader", "Read the README", 0, True)
    assert live.status is not None
    assert (live.status.word, live.live_since, list(live.facts)) == ("under way", 4, ["2 calls inside"])
    assert (model.depth, model.brief, tool.depth) == (1, "12.1k → 820", 1)
    assert model.summary == "m: done, 1.0 s, 12,100 tokens in, 820 out"
    assert (done.label, done.bars[0].since, done.bars[0].until) == ("subagent reader", 3.5, 9)
    assert (done.start_seq, done.end_seq) == (7, 7)
    assert [row.depth for row in inside] == [1, 1]


def test_a_subagent_of_which_nothing_else_is_known_stands_as_a_task() -> None:
    lane = "plan/1/turn1/m0.t0"
    known = fold_trace(
        (1, "phase.started", "plan/1", {}),
        (4, "model.request", f"{lane}/m2.t1", {"key": f"{lane}/m2.t1/m0", "model": "m"}),
    )

    _, *rows = rows_of(known, now=9, opened={"*"})

    assert [(row.label, row.depth) for row in rows] == [("task", 0), ("m", 1)]


def test_calls_stand_in_the_order_in_which_they_began() -> None:
    known = fold_trace(
        (1, "phase.started", "plan/1", {}),
        (3, "tool.started", "plan/1", {"key": "b", "tool": "execute"}),
        (
            4,
            "tool.result",
            "plan/1",
            {"key": "a", "tool": "grep", "args": {"path": "/", "pattern": "sum"}, "result": {"took_s": 2}},
        ),
    )

    _, *rows = rows_of(known, now=9, opened={"*"})

    assert [(row.key, row.brief) for row in rows] == [("a", "pattern: sum, path: /"), ("b", "")]
