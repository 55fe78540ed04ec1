"""What a run waits for, by the last events of its journal."""

from typing import Any

import pytest

from holdfast.runtime.events import EventKind
from holdfast.runtime.run_fold.provider_wait import ProviderWait, find_wait

NOON = 12 * 3600.0
HELD = ProviderWait("Waits for openai: too many requests.", NOON + 250.0)
SHARE = ProviderWait("Waits for one of 3 calls at a time to openai.")


def waits(wait: ProviderWait, lane_id: str = "spec") -> tuple[str, dict[str, Any]]:
    return EventKind.AGENT_PROGRESS, {"lane_id": lane_id, "payload": wait.to_payload()}


def event(kind: str, lane_id: str = "spec", **payload: Any) -> tuple[str, dict[str, Any]]:
    return kind, {"lane_id": lane_id, "ts": NOON, "payload": payload}


def failed(code: str, retry_in_s: float) -> tuple[str, dict[str, Any]]:
    return event("model.error", error={"code": code, "model": "gpt"}, retry_at=NOON + retry_in_s)


@pytest.mark.parametrize(
    ("events", "sentence"),
    [
        ([], None),
        ([waits(HELD)], "Waits for openai: too many requests, until 12:04:10 UTC."),
        ([waits(SHARE)], "Waits for one of 3 calls at a time to openai."),
        ([waits(HELD), waits(SHARE)], "Waits for one of 3 calls at a time to openai."),
        ([waits(SHARE), event("model.request")], None),
        ([waits(SHARE), event("model.request", "review")], "Waits for one of 3 calls at a time to openai."),
        ([waits(SHARE), event("message.received", "main")], "Waits for one of 3 calls at a time to openai."),
        ([waits(SHARE), event("agent.progress", waiting_for=None)], None),
        ([waits(SHARE), event("run.resumed", "main")], None),
        ([waits(ProviderWait("Waits for openai: too many requests.", NOON - 1.0))], None),
        ([failed("rate_limited", 250.0)], "Waits for gpt: too many requests, until 12:04:10 UTC."),
        ([failed("server_error", 250.0)], "Waits for gpt to be asked again, until 12:04:10 UTC."),
        ([failed("rate_limited", 1.0)], None),
        ([event("agent.progress", stalled="No.")], None),
    ],
)
def test_a_run_waits_for_what_its_lanes_said_last(events: list[Any], sentence: str | None) -> None:
    wait = find_wait(events, NOON)
    assert (wait and wait.describe()) == sentence
