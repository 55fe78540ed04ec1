"""The quick way of encoding a step's result makes the very bytes that the general way makes of the same event."""

import time
from typing import Any

import pytest

from holdfast.runtime.checkpoint.base import prepare
from holdfast.runtime.checkpoint.blobs import INLINE_BYTES
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.outcomes import step_result
from holdfast.runtime.outcomes.step_result import prepare_result
from holdfast.runtime.step import TOOL_CALL, Step

CASES: list[tuple[Step, int, Any, str | None]] = [
    (Step("a"), 1, {"number": 1, "text": "ä\0"}, None),
    (Step("a#2", fingerprint={"arguments": "00ff"}), 1, None, None),
    (Step("g1.2/a", "g1.2", fingerprint={"arguments": ""}), 3, [1.5, True], "list[float]"),
    (Step("a", kinds=TOOL_CALL), 1, "text", None),
]


@pytest.mark.parametrize("took_s", [0.009, 1.25])
@pytest.mark.parametrize(("step", "attempt", "data", "type_name"), CASES)
def test_the_bytes_are_those_of_the_event(
    step: Step, attempt: int, data: Any, type_name: str | None, took_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_result.time, "time", lambda: 1000.0)
    found = prepare_result("r", step, attempt, data, type_name, 1000.0 - took_s)

    event = found.event
    assert found.body == prepare(event).body
    assert (found.kind, type(found.kind), found.seq) == (str(step.kinds.completed), str, 0)
    assert (event.run_id, event.kind, event.lane_id) == ("r", step.kinds.completed, step.lane_id)
    more: dict[str, Any] = {"attempt": attempt} if attempt > 1 else {}
    more |= {"fingerprint": dict(step.fingerprint)} if step.fingerprint else {}
    more |= {"result_type": type_name} if type_name else {}
    more |= {"took_s": 1.25} if took_s == 1.25 else {}
    assert event.payload == {"key": step.key, "result": data, **more}
    assert list(event.payload) == ["key", "result", *more]


def test_a_large_result_goes_to_a_blob() -> None:
    found = prepare_result("r", Step("a"), 1, {"text": "x" * INLINE_BYTES}, None, time.time())

    assert len(found.body) < INLINE_BYTES
    assert len(found.blobs) == 1
    assert found.event.payload["result"] == {"text": "x" * INLINE_BYTES}
    assert found.stored_as(7) == Event(
        "r",
        seq=7,
        ts=found.event.ts,
        span_id=found.event.span_id,
        kind=EventKind.STEP_COMPLETED,
        payload=found.event.payload,
    )
