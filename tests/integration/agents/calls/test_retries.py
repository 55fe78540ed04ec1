"""A model that does not answer is asked again, then another one; every attempt stands in the journal."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.integration.agents.calls.test_replay import Till
from tests.support.agents.phase import LANE, RUN_ID, Phase, open_log
from tests.support.agents.served_phase import KEY, KEY_VARIABLE, QUICK, ServedPhase
from tests.support.model_server import Breaks, Drips, Hangs, ModelServer, Refuses, Reply, Says, asks

from holdfast.agents.calls.provider_errors import ProviderPause
from holdfast.agents.calls.retries import RetryRules, Timeouts
from holdfast.errors import ProviderContextExceeded, ProviderRequestRefused
from holdfast.runtime.checkpoint.sqlite.store import SQLiteCheckpointer
from holdfast.runtime.events import create_event
from holdfast.runtime.records import Records, StepState

BUSY = Refuses(429, {"retry-after": "0"})
TROUBLES: dict[str, tuple[Reply, int | None]] = {
    "rate_limited": (BUSY, 429),
    "overloaded": (Refuses(503), 503),
    "server_error": (Refuses(500), 500),
    "connection_lost": (Breaks("cut"), None),
    "cut_short": (Breaks("ended"), None),
    "malformed": (Breaks("garbage"), None),
}
MANY = RetryRules(tries=12, backoff_s=0.001)  # a busy machine may be too slow more than once


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


@pytest.fixture
def make_server() -> Iterator[Any]:
    with contextlib.ExitStack() as stack:
        yield lambda *replies: stack.enter_context(ModelServer({"": list(replies)}))


def errors(phase: Phase) -> list[dict[str, Any]]:
    return [event.payload for event in phase.events() if event.kind == "model.error"]


@pytest.mark.parametrize("code", TROUBLES)
async def test_a_passing_trouble_is_an_attempt_of_its_own(phase: Phase, make_server: Any, code: str) -> None:
    reply, status = TROUBLES[code]
    server = make_server([reply, reply, Says("There.")])
    served = ServedPhase(phase.folder, address=server.address)

    messages = await served.play(text="Go.")
    replayed = await served.play(text="Go.")

    assert [m.content for m in messages] == [m.content for m in replayed] == ["Go.", "There."]
    assert len(server.received) == 3
    assert [(e["error"]["code"], e["error"].get("status"), e.get("attempt", 1)) for e in errors(phase)] == [
        (code, status, 1),
        (code, status, 2),
    ]
    assert all("retry_at" in payload for payload in errors(phase))
    requests = [e.payload.get("attempt", 1) for e in phase.events() if e.kind == "model.request"]
    assert requests == [1, 2, 3]


async def test_arguments_that_are_not_json_are_asked_for_again(phase: Phase, make_server: Any) -> None:
    server = make_server([asks(("ls", '{"path": ')), Says("There.")])

    messages = await ServedPhase(phase.folder, address=server.address).play(text="Go.")

    assert messages[-1].content == "There."
    assert [payload["error"]["code"] for payload in errors(phase)] == ["malformed"]


@pytest.mark.parametrize("timeouts", [Timeouts(idle_s=0.2), Timeouts(call_s=0.2)], ids=["idle", "call"])
async def test_a_model_that_says_nothing_is_not_waited_for(phase: Phase, make_server: Any, timeouts: Timeouts) -> None:
    server = make_server([Hangs(), Says("There.")])
    served = ServedPhase(phase.folder, address=server.address, timeouts=timeouts, options={"retries": MANY})

    messages = await served.play(text="Go.", retries=replace(MANY, call_timeout_s=timeouts.call_s))

    assert messages[-1].content == "There."
    assert {payload["error"]["code"] for payload in errors(phase)} == {"timed_out"}


async def test_slow_bytes_are_bounded_by_the_whole_call(phase: Phase, make_server: Any) -> None:
    server = make_server([Says("a " * 100, piece_chars=1, pause_s=0.05), Says("There.")])
    served = ServedPhase(phase.folder, address=server.address, options={"retries": MANY})

    messages = await served.play(text="Go.", retries=replace(MANY, call_timeout_s=0.4))

    assert messages[-1].content == "There."
    assert {payload["error"]["code"] for payload in errors(phase)} == {"timed_out"}


async def test_the_limit_of_an_answer_holds_for_fast_streams_beside_each_other(phase: Phase, make_server: Any) -> None:
    """Each ends at its limit; a limit that is lost would let its stream go on for ever."""
    server = make_server(Drips(pause_s=0.001))
    rules = RetryRules(tries=1, call_timeout_s=0.5)

    async def play(number: int) -> None:
        folder = phase.folder / str(number)
        folder.mkdir()
        served = ServedPhase(folder, address=server.address, options={"retries": rules})
        with pytest.raises(ProviderPause, match=r"took longer than 0\.5 s"):
            await served.play(text="Go.")

    await asyncio.gather(*(play(number) for number in range(6)))


async def test_signs_of_life_without_an_answer_are_silence(phase: Phase, make_server: Any) -> None:
    server = make_server(Hangs(has_comments=True))
    served = ServedPhase(phase.folder, address=server.address, options={"retries": RetryRules(tries=1)})

    with pytest.raises(ProviderPause, match=r"silent for 0\.3 s"):
        await served.play(text="Go.", retries=RetryRules(tries=1, idle_timeout_s=0.3))


async def test_the_fallbacks_are_asked_in_their_order(phase: Phase, make_server: Any) -> None:
    server = make_server([*[Refuses(500)] * 3, Refuses(401), Says("From the last.")])
    served = ServedPhase(phase.folder, address=server.address, fallback_models=("second", "third"))

    messages = await served.play(text="Go.")

    assert messages[-1].content == "From the last."
    assert [received.body["model"] for received in server.received] == ["main"] * 3 + ["second", "third"]
    assert [e.payload["model"] for e in phase.events() if e.kind == "model.request"] == ["main"] * 3 + [
        "second",
        "third",
    ]


async def test_a_wait_that_is_too_long_goes_to_the_fallback_at_once(phase: Phase, make_server: Any) -> None:
    server = make_server([Refuses(429, {"retry-after": "600"}), Says("Elsewhere.")])
    served = ServedPhase(phase.folder, address=server.address, fallback_models=("second",))

    messages = await served.play(text="Go.")

    assert messages[-1].content == "Elsewhere."


async def test_what_the_provider_asks_for_is_waited(phase: Phase, make_server: Any) -> None:
    server = make_server([Refuses(429, {"retry-after": "0.7"}), Says("There.")])

    await ServedPhase(phase.folder, address=server.address).play(text="Go.")

    payload = errors(phase)[0]
    failed_at = next(event.ts for event in phase.events() if event.kind == "model.error")
    assert payload["retry_at"] - failed_at == pytest.approx(0.7, abs=0.1)


async def test_the_last_failure_comes_out_and_is_replayed(phase: Phase, make_server: Any) -> None:
    server = make_server(Refuses(400, message="no such setting"))
    served = ServedPhase(phase.folder, address=server.address)

    for _ in range(2):
        with pytest.raises(ProviderRequestRefused, match="no such setting"):
            await served.play(text="Go.")

    assert len(server.received) == 1
    assert "retry_at" not in errors(phase)[-1]


async def test_a_provider_that_does_not_answer_is_asked_again_by_whoever_goes_on(
    phase: Phase, make_server: Any
) -> None:
    server = make_server([*[Refuses(500)] * QUICK.tries, Refuses(500), Says("There.")])
    served = ServedPhase(phase.folder, address=server.address)

    with pytest.raises(ProviderPause, match=r"HTTP 500.*asked 3 times"):
        await served.play(text="Go.")
    messages = await served.play(text="Go.")

    assert messages[-1].content == "There."
    assert len(server.received) == QUICK.tries + 2


async def test_a_clock_that_was_ahead_makes_no_wait_longer(phase: Phase, make_server: Any) -> None:
    """Killed in a back-off while the clock was a day ahead; it is right again when the run goes on."""
    server = make_server(Says("There."))
    ahead = time.time() + 86_400
    failed = create_event(
        RUN_ID, "model.error", LANE, key=f"{LANE}/m0", error={"code": "overloaded"}, retry_at=ahead + 1
    )
    store = SQLiteCheckpointer(phase.store)
    store.save_event(replace(failed, ts=ahead))
    store.close()

    messages = await ServedPhase(phase.folder, address=server.address).play(text="Go.")

    assert messages[-1].content == "There."


async def test_a_request_that_is_too_long_is_not_repeated(phase: Phase, make_server: Any) -> None:
    too_long = Refuses(400, message="maximum context length is 10 tokens", code="context_length_exceeded")
    server = make_server(too_long)
    served = ServedPhase(phase.folder, address=server.address, fallback_models=("second",))

    with pytest.raises(ProviderContextExceeded):
        await served.play(text="Go.")
    request_count = len(server.received)
    with pytest.raises(ProviderContextExceeded):
        await served.play(text="Go.")

    assert len(server.received) == request_count
    assert {payload["error"]["code"] for payload in errors(phase)} == {"too_long"}


async def test_a_crash_between_attempts_goes_on_with_the_next_one(phase: Phase, make_server: Any) -> None:
    server = make_server([Refuses(500), Refuses(500), Refuses(500), Refuses(500), Says("There.")])
    served = ServedPhase(phase.folder, address=server.address, fallback_models=("second",))
    served.options["retries"] = RetryRules(tries=3, backoff_s=30)
    playing = asyncio.create_task(served.play(text="Go."))
    while not (phase.folder / "run.db").exists() or not errors(phase):
        await asyncio.sleep(0.01)
    playing.cancel()
    # The process "dies" while it waits: nothing is drained.
    for task in asyncio.all_tasks() - {asyncio.current_task()}:  # type: ignore[arg-type]
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await playing
    async with open_log(phase.store) as log:
        record = log.records.by_key["step", f"{LANE}/m0"]
        record.retry_at = 0.0
        assert (record.state, record.attempt) == (StepState.WAITING, 1)
        served.options["retries"] = QUICK
        journal = served.middleware(log)
        result = await served.agent(journal).ainvoke({"messages": [{"role": "user", "content": "Go."}]})

    assert result["messages"][-1].content == "There."
    assert [received.body["model"] for received in server.received] == ["main"] * 3 + ["second"] * 2
    last = Records(phase.events()).by_key["step", f"{LANE}/m0"]
    assert last.attempt == 5


async def test_each_attempt_reserves_anew_and_the_answer_settles(phase: Phase, make_server: Any) -> None:
    server = make_server([BUSY, Says("There.", usage={"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10})])
    gate = Till()

    await ServedPhase(phase.folder, address=server.address).play(text="Go.", gate=gate)

    assert len(gate.calls) == 2
    assert [(used.input_tokens, used.output_tokens) for used in gate.settled if used] == [(7, 3)]


async def test_the_cost_a_provider_reports_is_the_cost(phase: Phase, make_server: Any) -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10, "cost": 0.001234}
    gate = Till()

    await ServedPhase(phase.folder, address=make_server(Says("There.", usage=usage)).address).play(
        text="Go.", gate=gate
    )

    assert [used.cost_micros for used in gate.settled if used] == [1234]
