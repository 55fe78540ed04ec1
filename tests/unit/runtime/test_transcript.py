from typing import Any

import pytest

from holdfast.runtime.events import Event, EventKind, create_event
from holdfast.runtime.transcript import transcript

SAID = {"$msg": ["AIMessage", {"content": "Hello", "tool_calls": [{"name": "ls"}, {"name": "grep"}]}]}


def at(seconds: float, seq: int, kind: str, lane_id: str = "main", **payload: Any) -> Event:
    return Event(run_id="r", seq=seq, ts=1000.0 + seconds, kind=kind, lane_id=lane_id, payload=payload)


def tell(kind: str, lane_id: str = "main", **payload: Any) -> str:
    (line,) = transcript([create_event("r", kind, lane_id, seq=1, **payload)])
    return line.partition(" s  ")[2]


def test_a_run_is_told_line_by_line_with_number_and_time() -> None:
    lines = transcript(
        [
            at(0, 1, "run.created", purpose="release"),
            at(0.25, 2, "step.completed", key="notes", result={"fixes": 3}),
            at(90, 3, "run.completed", result=None),
        ]
    )

    assert lines == [
        "   1     +0.00 s  run created: release",
        '   2     +0.25 s  notes completed: {"fixes":3}',
        "   3    +90.00 s  run completed: null",
    ]


def test_no_events_are_no_lines() -> None:
    assert transcript([]) == []


@pytest.mark.parametrize("kind", EventKind)
def test_every_kind_is_told_even_without_a_payload(kind: EventKind) -> None:
    assert tell(kind)


def test_an_event_of_a_newer_version_keeps_its_kind_and_payload() -> None:
    assert tell("moon.landed", where="here") == 'moon.landed {"where":"here"}'


@pytest.mark.parametrize(
    ("kind", "payload", "phrase"),
    [
        ("step.failed", {"key": "a", "error": {"message": "no"}, "attempt": 2}, "a failed (attempt 2): no"),
        ("step.failed", {"key": "a", "error": {"message": "no"}, "retry_at": 1.0}, "a failed: no, to be tried again"),
        ("step.unknown", {"key": "a", "resolution": "ask"}, "a had no outcome when the run went on: ask"),
        ("human.approval.received", {"key": "a", "action": "reject", "by": "Ada"}, "a answered by Ada: reject"),
        ("run.paused", {"waiting": ["a", "b"]}, "run paused, waits for a and b"),
        ("run.cancelled", {"by": "", "reason": "too late"}, "run cancelled: too late"),
        ("timer.started", {"key": "sleep", "seconds": 5}, "sleep for 5 s"),
        ("run.paused", {"reason": "person"}, "run paused (person)"),
        ("run.completed", {"report": "/r.json"}, "run completed, report in /r.json"),
        (
            "phase.started",
            {"phase": "plan", "attempt_no": 2, "result": {"persona": "p"}},
            "phase plan started (attempt 2), by p",
        ),
        (
            "phase.reopened",
            {"phase": "plan", "comment": "more\ntests"},
            "phase plan starts another attempt: more tests",
        ),
        ("tool.started", {"tool": "command", "argv": ["make", "test"]}, "calls make test"),
        ("tool.started", {"tool": "agent", "args": {"argv": ["codex", "exec"]}}, "calls codex exec"),
        (
            "tool.started",
            {"tool": "execute", "args": {"command": "ls", "argv": ["make"]}},
            "calls execute ls … (+1 argument)",
        ),
        (
            "tool.result",
            {"tool": "ls", "args": {"path": "/"}, "result": {"took_s": 0.5, "value": SAID}},
            "ls / ended after 0.5 s: Hello",
        ),
        ("tool.result", {"key": "k", "result": {"exit_code": 1, "output": "no\n"}}, "k ended with exit code 1: no"),
        ("model.response", {"result": {"value": {"$mr": {"result": [SAID]}}}}, "model answered, calls ls, grep: Hello"),
        ("human.approval.requested", {"key": "a", "show": {"question": "May it?"}}, "a waits for a person: May it?"),
        (
            "human.approval.requested",
            {"key": "a", "show": {"artifact": "p.json", "files": ["x"], "added": 2}},
            "a waits for a person: p.json, 1 file, +2 −0",
        ),
        (
            "budget.settled",
            {"amount_micros": 3500, "input_tokens": 9, "output_tokens": 1},
            "$0.0035 spent (9 tokens in, 1 out)",
        ),
    ],
)
def test_phrases_say_what_is_there_and_nothing_else(kind: str, payload: dict[str, Any], phrase: str) -> None:
    assert tell(kind, **payload) == phrase


def test_a_lane_is_named_unless_the_key_names_it() -> None:
    assert tell("step.started", "g1.2", key="g1.2/build") == "g1.2/build started"
    assert tell("agent.progress", "g1.2") == "[g1.2] agent.progress"


def test_pieces_of_a_streamed_text_are_one_line() -> None:
    lines = transcript([at(0, 1, "text.delta", text="Hel"), at(0, 2, "text.delta", text="lo"), at(1, 3, "text.done")])

    assert [line.partition(" s  ")[2] for line in lines] == ["Hello", "text.done"]


def test_pieces_of_two_lanes_are_kept_apart() -> None:
    lines = transcript([at(0, 1, "text.delta", "a", text="one"), at(0, 2, "text.delta", "b", text="two")])

    assert [line.partition(" s  ")[2] for line in lines] == ["[a] one", "[b] two"]


@pytest.mark.parametrize("hostile", ["\x1b[2Jgone", "a\nb", "\x9b31m", "\u202eback"])
def test_nothing_that_steers_a_terminal_gets_through(hostile: str) -> None:
    assert tell("step.completed", hostile, key=hostile, result=hostile).isprintable()
    assert tell(f"odd.{hostile}").isprintable()


def test_long_values_are_cut() -> None:
    assert len(tell("step.completed", key="a", result="x" * 10_000)) < 120


@pytest.mark.parametrize("payload", [{"text": 5}, {}, {"text": None}])
def test_odd_payloads_do_not_stop_the_telling(payload: dict[str, Any]) -> None:
    assert len(transcript([at(0, 1, "text.delta", **payload), at(0, 2, "text.delta", text="x")])) == 2


@pytest.mark.parametrize("kind", EventKind)
@pytest.mark.parametrize(
    "value", [None, 7, "x\x1b[2J", [], [None], {"$msg": ["M", 3]}, {"$msg": ["M", {"content": [7]}]}], ids=str
)
def test_whatever_stands_in_a_payload_is_told_in_printable_text(kind: EventKind, value: Any) -> None:
    names = ("key", "result", "error", "args", "argv", "show", "waiting", "amount_micros", "comment", "text", "took_s")

    assert tell(kind, **dict.fromkeys(names, value)).isprintable()
