"""Model calls share their providers: in order, within the limits, and without losing a place."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from holdfast.agents.calls import rate_limits as module
from holdfast.agents.calls.rate_limits import RateLimits, _Provider, get_rate_limits, provider_of
from holdfast.config import load_config
from holdfast.enums import Backend
from holdfast.errors import ConfigInvalid
from holdfast.persona import AgentPersona
from holdfast.runtime.run_fold.provider_wait import ProviderWait


async def no_word(_wait: ProviderWait) -> None: ...


async def turns(count: int = 20) -> None:
    """Let everything go on that can."""
    for _ in range(count):
        await asyncio.sleep(0)


def calling(
    rate_limits: RateLimits, name: str, log: list[str], gate: asyncio.Event
) -> Callable[[str], Awaitable[None]]:
    async def call(run_id: str) -> None:
        async with rate_limits.slot(name, run_id).reserve(no_word):
            log.append(run_id)
            await gate.wait()

    return call


async def test_calls_beyond_the_limit_wait_in_their_order_and_say_why() -> None:
    rate_limits, log, gate = RateLimits((("*", 2),), ()), list[str](), asyncio.Event()
    call = calling(rate_limits, "openai", log, gate)
    tasks = [asyncio.ensure_future(call(f"r{number}")) for number in range(5)]
    await turns()

    assert log == ["r0", "r1"]
    assert rate_limits.find_reason("r0") is None
    assert rate_limits.find_reason("r4") == "Waits for one of 2 calls at a time to openai, the limit of its process."
    assert (rate_limits.count_under_way(), rate_limits.count_waiting()) == ({"openai": 2}, {"openai": 3})

    gate.set()
    await asyncio.gather(*tasks)
    assert log == [f"r{number}" for number in range(5)]
    assert (rate_limits.count_under_way(), rate_limits.count_waiting()) == ({"openai": 0}, {"openai": 0})


async def test_providers_do_not_wait_for_each_other() -> None:
    rate_limits, log, gate = RateLimits((("*", 1), ("ollama", 2)), ()), list[str](), asyncio.Event()
    tasks = [
        asyncio.ensure_future(calling(rate_limits, name, log, gate)(f"{name}-{number}"))
        for name in ("openai", "ollama", "ollama@other:1")
        for number in range(3)
    ]
    await turns()

    assert sorted(log) == ["ollama-0", "ollama-1", "ollama@other:1-0", "ollama@other:1-1", "openai-0"]
    gate.set()
    await asyncio.gather(*tasks)


async def test_a_minute_holds_so_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MINUTE_S", 1.0)
    rate_limits, log, gate = RateLimits((), (("*", 2),)), list[str](), asyncio.Event()
    gate.set()
    call = calling(rate_limits, "openai", log, gate)
    tasks = [asyncio.ensure_future(call(f"r{number}")) for number in range(5)]
    await turns()

    assert log == ["r0", "r1"]
    assert rate_limits.find_reason("r2") == "Waits for one of 2 calls a minute to openai, the limit of its process."
    await asyncio.gather(*tasks)
    assert log == [f"r{number}" for number in range(5)]


async def test_a_provider_that_asks_for_a_pause_gets_it_from_every_run() -> None:
    rate_limits, log, gate = RateLimits((), ()), list[str](), asyncio.Event()
    gate.set()
    slot = rate_limits.slot("openai", "a")
    slot.hold_off(1.0)
    task = asyncio.ensure_future(calling(rate_limits, "openai", log, gate)("b"))
    await turns()

    assert log == []
    assert str(rate_limits.find_reason("b")).startswith("Waits for openai: too many requests, until ")
    await task
    assert log == ["b"]


async def test_who_gives_up_waiting_takes_no_place() -> None:
    rate_limits, log, gate = RateLimits((("*", 1),), ()), list[str](), asyncio.Event()
    call = calling(rate_limits, "openai", log, gate)
    tasks = [asyncio.ensure_future(call(f"r{number}")) for number in range(4)]
    await turns()
    tasks[1].cancel()
    await turns()
    gate.set()
    tasks[0].cancel()  # its place is free at the same moment as r2 stops waiting for it
    tasks[2].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert log == ["r0", "r3"]
    assert (rate_limits.count_under_way(), rate_limits.count_waiting()) == ({"openai": 0}, {"openai": 0})
    assert rate_limits.find_reason("r2") is None


async def test_a_long_wait_is_told_and_again_only_when_it_has_another_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REPORT_AFTER_S", 0.001)
    rate_limits, waits, looks = RateLimits((("*", 1),), ()), list[ProviderWait](), list[str]()
    find_wait = _Provider.find_wait

    def look(provider: _Provider) -> ProviderWait:
        wait = find_wait(provider)
        looks.append(wait.text)
        if looks[-3:] == [wait.text] * 3 and wait.until is None:  # nothing more was said of what is still so
            rate_limits.leave("openai")
        return wait

    async def tell(wait: ProviderWait) -> None:
        waits.append(wait)

    monkeypatch.setattr(_Provider, "find_wait", look)
    rate_limits.hold_off("openai", 0.05)
    held = asyncio.create_task(rate_limits.enter("openai", "b", tell))
    while not waits:
        await asyncio.sleep(0)
    rate_limits._get("openai").under_way += 1  # another call was faster
    await held

    assert [wait.text for wait in waits] == [
        "Waits for openai: too many requests.",
        "Waits for the only call at a time to openai, the limit of its process.",
    ]
    assert waits[0].until is not None
    assert waits[1].until is None


async def test_all_runs_of_a_loop_share_one(tmp_path: Path) -> None:
    config = load_config(data_dir=tmp_path)

    assert get_rate_limits(config) is get_rate_limits(load_config(data_dir=tmp_path / "other"))
    assert get_rate_limits(config) is not get_rate_limits(load_config(data_dir=tmp_path, max_parallel_model_calls=3))


def test_a_server_of_its_own_is_a_provider_of_its_own() -> None:
    persona = AgentPersona(
        name="n",
        version=1,
        backend=Backend.OPENAI_COMPATIBLE,
        model="m",
        base_url="https://h:1/v1",
        capabilities=["debug"],
    )

    assert provider_of(persona) == "openai_compatible@h:1"
    assert provider_of(persona.model_copy(update={"backend": Backend.OPENAI, "base_url": None})) == "openai"


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (8, (("*", 8),)),
        ("8", (("*", 8),)),
        ("ollama=1, *=16", (("*", 16), ("ollama", 1))),
        ({"ollama": 1, "openai_compatible@h": 4}, (("ollama", 1), ("openai_compatible@h", 4))),
    ],
)
def test_limits_are_one_number_or_one_for_each_provider(limits: object, expected: object) -> None:
    assert load_config(max_parallel_model_calls=limits).max_parallel_model_calls == expected


@pytest.mark.parametrize("limit", [0, "x", "ollama=0", "nobody=3", {"ollama": "many"}, [1], True, "ollama=", {1: 2}])
def test_a_limit_that_is_none_is_refused(limit: object) -> None:
    with pytest.raises(ConfigInvalid) as error:
        load_config(model_calls_per_minute=limit)

    assert error.value.facts["key"] == "model_calls_per_minute"
