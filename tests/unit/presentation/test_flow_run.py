"""A flow run for people: how long its steps took, and how they stand."""

from typing import Any

from holdfast.presentation.flow_run import FlowStep, describe_flow_crashes, describe_flow_now, view_flow
from holdfast.runtime.events import Event


def to_events(*entries: tuple[float, str, dict[str, Any]]) -> list[Event]:
    return [
        Event("r", seq=number, ts=ts, kind=kind, payload=payload)
        for number, (ts, kind, payload) in enumerate(
            [(0.0, "run.created", {"flow": "f"}), (0.0, "run.started", {}), *entries], start=1
        )
    ]


def to_step(*entries: tuple[float, str, dict[str, Any]]) -> FlowStep:
    return view_flow("r", to_events(*entries)).steps[0]


def to_times(step: FlowStep) -> tuple[float | None, float | None]:
    return step.started_at, step.ended_at


def test_a_step_took_what_its_event_says_or_no_time() -> None:
    assert to_times(to_step((5.0, "step.completed", {"key": "a", "took_s": 2.0}))) == (3.0, 5.0)
    assert to_times(to_step((5.0, "step.completed", {"key": "a"}))) == (5.0, 5.0)


def test_a_step_with_an_intent_took_the_time_since_then() -> None:
    intent, result = (3.0, "step.started", {"key": "a"}), (5.0, "step.completed", {"key": "a"})

    assert to_times(to_step(intent)) == (3.0, None)
    assert to_times(to_step(intent, result)) == (3.0, 5.0)


def test_of_a_step_that_was_tried_again_the_last_try_counts() -> None:
    failed = (3.0, "step.failed", {"key": "a", "error": {"message": "down"}, "retry_at": 9.0, "took_s": 1.0})

    assert to_times(to_step(failed, (10.0, "step.completed", {"key": "a", "attempt": 2, "took_s": 0.5}))) == (9.5, 10.0)
    assert to_step(failed).state == "waiting"


def test_a_step_that_failed_its_run_has_failed_although_a_retry_makes_it_again() -> None:
    step = to_step(
        (3.0, "step.failed", {"key": "a", "error": {"message": "down"}}),
        (3.0, "run.failed", {"error": {"message": "down"}, "steps": ["a"]}),
    )

    assert (step.state, step.ended_at, step.error) == ("failed", 3.0, {"message": "down"})


def test_a_timer_is_over_when_the_flow_has_gone_on() -> None:
    timer = (3.0, "timer.started", {"key": "sleep", "wake_at": 8.0})

    asleep, awake = to_step(timer), to_step(timer, (9.0, "step.completed", {"key": "a"}))

    assert (asleep.state, *to_times(asleep)) == ("started", 3.0, None)
    assert (awake.state, *to_times(awake)) == ("completed", 3.0, 8.0)
    assert to_step(timer, (8.0, "run.completed", {"result": None})).state == "completed"


def test_an_approval_took_until_its_answer() -> None:
    question, answer = (3.0, "human.approval.requested", {"key": "go"}), (7.0, "human.approval.received", {"key": "go"})

    assert to_times(to_step(question)) == (3.0, None)
    assert to_times(to_step(question, answer)) == (3.0, 7.0)


def test_a_question_says_until_when_it_can_be_answered() -> None:
    request = (3.0, "human.approval.requested", {"key": "go", "wake_at": 9.0})

    (question,) = view_flow("r", to_events(request)).questions

    assert question.deadline_at == 9.0


def test_what_a_flow_tells_its_watchers_is_shown_and_the_last_status_counts() -> None:
    view = view_flow(
        "r",
        to_events(
            (1.0, "status.set", {"text": "packing"}),
            (2.0, "log.written", {"message": "paid", "fields": {"cents": 5}}),
            (3.0, "status.set", {"text": "shipping"}),
            (4.0, "partial.emitted", {"value": [1]}),
        ),
    )

    assert view.status_text == "shipping"
    assert [(note.kind, note.text, note.value, note.written_at) for note in view.notes] == [
        ("status.set", "packing", None, 1.0),
        ("log.written", "paid", {"cents": 5}, 2.0),
        ("status.set", "shipping", None, 3.0),
        ("partial.emitted", "", [1], 4.0),
    ]
    assert view_flow("r", to_events()).status_text == ""


def test_a_child_names_its_run() -> None:
    started = (1.0, "child.started", {"key": "ship", "child": "r.ship.1"})

    assert to_step(started).child_run_id == "r.ship.1"
    assert to_step((1.0, "step.completed", {"key": "a"})).child_run_id is None


def test_arguments_are_shown_without_how_their_types_are_recorded() -> None:
    created = {
        "flow": "f",
        "args": [7, {"$type": "datetime.timedelta", "$value": "PT30S"}],
        "kwargs": {"client": {"$type": "shop.Client"}, "plain": {"$value": 1}},
    }

    view = view_flow("r", [Event("r", seq=1, ts=0.0, kind="run.created", payload=created)])

    assert view.args == [7, "PT30S"]
    assert view.kwargs == {"client": "a shop.Client", "plain": {"$value": 1}}


def test_a_run_whose_wait_is_over_and_that_nobody_has_taken_is_to_go_on() -> None:
    row = {"state": "paused", "waits_for": "boss", "wake_at": "2020-01-01T00:00:00.000Z", "is_driven": False}

    assert describe_flow_now(row) == "is to go on"  # somebody has answered, or it is too late for that
    assert describe_flow_now({**row, "wake_at": "2999-01-01T00:00:00.000Z"}) == "waits for boss"
    assert describe_flow_now({**row, "state": "running", "waits_for": "sleep"}) == "is to go on"
    assert describe_flow_now({**row, "state": "running", "is_driven": True}) == "runs"


def test_a_run_that_kills_its_processes_says_so_and_what_to_do() -> None:
    row = {"run_id": "r", "state": "paused", "waits_for": "crashing", "wake_at": None, "is_driven": False}

    assert describe_flow_now(row) == "its processes died again and again"
    assert "or with holdfast resume r --flows MODULE; holdfast abort r ends it." in describe_flow_crashes(row)
    assert (
        describe_flow_crashes({**row, "waits_for": "boss"}) == describe_flow_crashes({**row, "state": "running"}) == ""
    )
    assert describe_flow_crashes({**row, "wake_at": "2020-01-01T00:00:00.000Z"}) == ""
