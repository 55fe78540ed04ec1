"""Model calls that wait for their provider: told in the journal, not yet asked for, and made in their turn."""

import asyncio
import signal
import subprocess
import sys
from contextlib import ExitStack

import pytest
from sqlalchemy import text
from tests.support.agents.phase import RUN_ID, Phase
from tests.support.agents.served_phase import KEY, KEY_VARIABLE, ServedPhase
from tests.support.model_server import ModelServer, Refuses, Says
from tests.support.progress_limit import until, waiting_until

from holdfast.agents.calls import rate_limits as module
from holdfast.agents.calls.provider_errors import ProviderPause
from holdfast.agents.calls.rate_limits import RateLimits
from holdfast.agents.calls.retries import RetryRules
from holdfast.persistence.admission import put_limit
from holdfast.persistence.db import Database
from holdfast.persistence.provider_shares import take_share
from holdfast.runtime.run_fold.provider_wait import ProviderWait


async def no_word(_wait: ProviderWait) -> None: ...


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


async def wait_for_event(phase: Phase, kind: str) -> None:
    await until(lambda: kind in [event.kind for event in phase.events()], f"{kind} is told")


async def test_a_call_that_must_wait_says_why_and_reserves_nothing(
    phase: Phase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_REPORT_AFTER_S", 0.01)
    rate_limits = RateLimits((("*", 1),), ())
    with ModelServer({"": [Says("There.")]}) as server:
        served = ServedPhase(phase.folder, address=server.address)
        await rate_limits.enter("here", "another run", no_word)
        playing = asyncio.create_task(served.play(text="Go.", provider_slot=rate_limits.slot("here", RUN_ID)))
        await wait_for_event(phase, "agent.progress")

        before = [(event.kind, event.payload.get("waiting_for")) for event in phase.events()]
        reason = rate_limits.find_reason(RUN_ID)
        rate_limits.leave("here")
        messages = await playing

    assert before == [("agent.progress", "Waits for the only call at a time to here, the limit of its process.")]
    assert reason == before[0][1]
    assert messages[-1].content == "There."
    assert rate_limits.find_reason(RUN_ID) is None
    assert rate_limits.count_under_way() == {"here": 0}


async def test_a_further_attempt_that_must_wait_says_when_that_is_over(
    phase: Phase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its request is there before it waits, so that nothing else would say so."""
    monkeypatch.setattr(module, "_REPORT_AFTER_S", 0.01)
    rate_limits = RateLimits((("*", 1),), ())
    with ModelServer({"": [[Refuses(500), Says("There.")]]}) as server:
        served = ServedPhase(phase.folder, address=server.address)
        playing = asyncio.create_task(served.play(text="Go.", provider_slot=rate_limits.slot("here", RUN_ID)))
        await until(lambda: rate_limits.count_under_way().get("here"), "the first attempt is under way")
        await rate_limits.enter("here", "another run", no_word)  # as soon as that has failed
        await wait_for_event(phase, "agent.progress")
        rate_limits.leave("here")
        await playing

    said = [(e.kind, e.payload.get("waiting_for")) for e in phase.events() if e.kind.startswith(("agent.p", "model."))]
    assert said == [
        ("model.request", None),
        ("model.error", None),
        ("model.request", None),
        ("agent.progress", "Waits for the only call at a time to here, the limit of its process."),
        ("agent.progress", None),
        ("model.response", None),
    ]


async def test_who_is_told_to_come_later_tells_every_run(phase: Phase) -> None:
    rate_limits = RateLimits((), ())
    with ModelServer({"": [[Refuses(429, {"retry-after": "2"}), Says("There.")]]}) as server:
        served = ServedPhase(phase.folder, address=server.address)
        playing = asyncio.create_task(served.play(text="Go.", provider_slot=rate_limits.slot("here", RUN_ID)))
        await wait_for_event(phase, "model.error")

        other = asyncio.create_task(rate_limits.enter("here", "another run", no_word))
        await asyncio.sleep(0)
        reason = rate_limits.find_reason("another run")
        await asyncio.gather(playing, other)

    assert str(reason).startswith("Waits for here: too many requests, until ")
    assert [len(server.received), playing.result()[-1].content] == [2, "There."]
    assert rate_limits.count_under_way() == {"here": 1}


async def test_too_many_calls_of_one_process_hold_those_of_another_to_that_provider_alone(
    phase: Phase, database_url: str
) -> None:
    databases = [Database(database_url) for _ in range(2)]
    await databases[0].init_schema()
    here, there = RateLimits((), ()), RateLimits((), ())
    here.share_with(databases[0])
    there.share_with(databases[1])
    gives_up = {"retries": RetryRules(tries=1, backoff_s=30.0)}
    with ModelServer({"": [Refuses(429)]}) as server:
        served = ServedPhase(phase.folder, address=server.address, options=gives_up)
        with pytest.raises(ProviderPause):
            await served.play(text="Go.", provider_slot=here.slot("busy", RUN_ID))
        with waiting_until("the other process can read of it"):
            while not (await take_share(databases[1], "busy", "", under_way=0)).hold_s:
                await asyncio.sleep(0.01)

        waiting = asyncio.create_task(there.enter("busy", "another run", no_word))
        await until(lambda: there.find_reason("another run"), "the call of the other process waits")
        reason = there.find_reason("another run")
        await there.enter("idle", "another run", no_word)  # at once

        assert str(reason).startswith("Waits for busy: too many requests, until ")
        assert there.count_under_way() == {"busy": 0, "idle": 1}
        waiting.cancel()
        await asyncio.wait((waiting,))
    for db in databases:
        await db.dispose()


def start_caller(url: str, server: ModelServer, count: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.support.calling_process", url, server.address, "busy", str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_processes_that_come_go_and_fall_silent_never_pass_the_limit_together(database_url: str) -> None:
    db = Database(database_url)
    await db.init_schema()
    await put_limit(db, "provider", "busy", 3, by="")

    async def count_shares() -> int:
        async with db.session() as session:
            return int(await session.scalar(text("SELECT count(*) FROM provider_shares")) or 0)

    with ModelServer({"": [Says("Slowly.", piece_chars=1, pause_s=0.01)]}) as server, ExitStack() as stack:

        def start(count: int) -> "subprocess.Popen[str]":
            caller = stack.enter_context(start_caller(database_url, server, count))
            stack.callback(caller.kill)
            return caller

        killed, silent, steady = start(500), start(20), start(120)
        with waiting_until("all three make calls"):
            while await count_shares() < 3:
                await asyncio.sleep(0.02)
        late = start(20)
        with waiting_until("a fourth one makes calls"):
            while await count_shares() < 4:
                await asyncio.sleep(0.02)
        killed.kill()
        silent.send_signal(signal.SIGSTOP)
        begun = len(server.received)
        with waiting_until("the places of those that are silent are over, and go to the others"):
            while await count_shares() > 2 or (len(server.received) < begun + 6 and late.poll() is None):
                await asyncio.sleep(0.05)
        silent.send_signal(signal.SIGCONT)
        last = start(5)
        callers = (silent, steady, late, last)
        said = [await asyncio.to_thread(caller.communicate) for caller in callers]

    await db.dispose()
    assert [len(out.splitlines()) for out, _ in said] == [20, 120, 20, 5]
    assert server.most_at_once == 3


async def test_a_replay_waits_for_nobody(phase: Phase) -> None:
    rate_limits = RateLimits((("*", 1),), ())
    with ModelServer({"": [Says("There.")]}) as server:
        served = ServedPhase(phase.folder, address=server.address)
        await served.play(text="Go.", provider_slot=rate_limits.slot("here", RUN_ID))
        await rate_limits.enter("here", "another run", no_word)

        messages = await served.play(text="Go.", provider_slot=rate_limits.slot("here", RUN_ID))

    assert messages[-1].content == "There."
