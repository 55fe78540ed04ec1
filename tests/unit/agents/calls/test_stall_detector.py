"""When an agent is nudged, handed to another model, and stopped."""

from typing import Any

from holdfast.agents.calls.stall_detector import Advice, Limits, StallDetector
from holdfast.agents.tools.rules import ToolCall

LIMITS = Limits(max_turns=50)
LOOK = ToolCall("ls", {"path": "/"}, "1")


def answer(text: str, *, is_error: bool = False, **facts: Any) -> dict[str, Any]:
    fields = {"content": text, **({"status": "error"} if is_error else {})}
    return {"codec": 1, "value": {"$msg": ["ToolMessage", fields]}, **facts}


def play(governor: StallDetector, *turns: list[tuple[ToolCall, dict[str, Any]]], lane_id: str = "p/1") -> list[Advice]:
    advice = []
    for number, calls in enumerate(turns):
        advice.append(governor.advise(lane_id))
        for place, (call, recorded) in enumerate(calls):
            governor.note_result(lane_id, f"{lane_id}/m{number}.t{place}", call, recorded)
    return [*advice, governor.advise(lane_id)]


def test_the_same_call_with_the_same_result_is_nudged_then_handed_on_then_stopped() -> None:
    advice = play(StallDetector(LIMITS), *[[(LOOK, answer("README.md"))]] * 7)

    go, nudge, fall = Advice.GO_ON, Advice.NUDGE, Advice.FALL_BACK
    assert advice == [go, go, go, nudge, nudge, fall, fall, Advice.STOP]


def test_another_result_is_progress() -> None:
    turns = [[(LOOK, answer(f"file {number}"))] for number in range(9)]

    assert set(play(StallDetector(LIMITS), *turns)) == {Advice.GO_ON}


def test_a_changed_file_is_progress() -> None:
    write = ToolCall("write_file", {"file_path": "/a"}, "1")
    turns = [[(write, answer("written", tree=f"tree{number}"))] for number in range(9)]

    assert set(play(StallDetector(LIMITS), *turns)) == {Advice.GO_ON}


def test_writing_the_same_again_is_none() -> None:
    write = ToolCall("write_file", {"file_path": "/a"}, "1")

    assert play(StallDetector(LIMITS), *[[(write, answer("written", tree="same"))]] * 8)[-1] is Advice.STOP


def test_the_same_error_for_other_arguments_is_no_progress() -> None:
    turns = [
        [(ToolCall("read_file", {"file_path": f"/{number}"}), answer("no such tool", is_error=True))]
        for number in range(7)
    ]

    assert play(StallDetector(LIMITS), *turns)[-1] is Advice.STOP


def test_going_round_in_two_steps_is_no_progress() -> None:
    turns = [[(LOOK, answer("a"))], [(ToolCall("glob", {"pattern": "*"}), answer("b"))]] * 4

    assert play(StallDetector(LIMITS), *turns)[-1] is Advice.STOP


def test_lanes_are_watched_apart() -> None:
    governor = StallDetector(LIMITS)
    play(governor, *[[(LOOK, answer("README.md"))]] * 7)

    assert play(governor, [(LOOK, answer("README.md"))], lane_id="p/1/m0.t0") == [Advice.GO_ON, Advice.GO_ON]


def test_the_number_of_turns_is_limited_and_can_be_granted_again() -> None:
    governor = StallDetector(Limits(max_turns=3))
    turns = [[(LOOK, answer(f"file {number}"))] for number in range(3)]
    assert play(governor, *turns)[-1] is Advice.STOP

    governor.forgive("p/1")

    assert governor.advise("p/1") is Advice.GO_ON


def test_work_is_counted_over_processes_and_once_for_calls_beside_each_other() -> None:
    governor = StallDetector(Limits(max_work_s=5.5))
    governor.note_answer("p/1", {"took_s": 2.0})
    play(governor, [(LOOK, answer("a", took_s=3.0)), (LOOK, answer("b", took_s=1.0))])
    assert not governor.is_out_of_time("p/1")

    governor.note_answer("p/1", {"took_s": 1.0})

    assert governor.is_out_of_time("p/1")


def test_the_diagnosis_names_what_was_repeated() -> None:
    governor = StallDetector(LIMITS)
    play(governor, *[[(LOOK, answer("README.md"))]] * 7)

    assert governor.diagnose("p/1")["calls"] == [{"call": "ls path=/", "times": 7}]
