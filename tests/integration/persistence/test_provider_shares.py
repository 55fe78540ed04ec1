"""Calls to a provider by several processes: together within the limit, and held together."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text
from tests.support.progress_limit import until

from holdfast.agents.calls import rate_limits
from holdfast.agents.calls.rate_limits import RateLimits
from holdfast.errors import StoreUnavailable
from holdfast.persistence import provider_shares
from holdfast.persistence.admission import put_limit
from holdfast.persistence.db import Database
from holdfast.persistence.provider_shares import ProviderTerms, drop_share, hold_provider, take_share
from holdfast.persistence.statements import to_time_text
from holdfast.runtime.run_fold.provider_wait import ProviderWait

PROVIDER = "openai"


@pytest.fixture
async def databases(database_url: str) -> AsyncIterator[list[Database]]:
    made = [Database(database_url) for _ in range(3)]
    await made[0].init_schema()
    yield made
    for db in made:
        await db.dispose()


async def no_word(_wait: ProviderWait) -> None: ...


async def test_shares_shrink_for_who_comes_and_their_sum_never_passes_the_limit(databases: list[Database]) -> None:
    db = databases[0]
    await put_limit(db, "provider", PROVIDER, 3, by="")
    assert (await take_share(db, PROVIDER, "a", under_way=0)).share == 3
    assert (await take_share(db, PROVIDER, "b", under_way=0)).share == 0  # nothing is free yet
    part = (await take_share(db, PROVIDER, "a", under_way=3)).share
    assert part in (1, 2)  # what is under way goes on, and has its places: but no more begin
    assert (await take_share(db, PROVIDER, "b", under_way=0)).share == 0
    assert (await take_share(db, PROVIDER, "a", under_way=1)).share == part
    assert (await take_share(db, PROVIDER, "b", under_way=0)).share == 3 - part
    await drop_share(db, PROVIDER, "a")
    assert (await take_share(db, PROVIDER, "b", under_way=1)).share == 3
    assert (await take_share(db, "ollama", "b", under_way=0)).share is None


async def test_a_limit_for_a_backend_holds_for_each_of_its_servers_unless_one_has_its_own(
    databases: list[Database],
) -> None:
    db, backend = databases[0], "openai_compatible"
    servers = (backend, f"{backend}@a", f"{backend}@b")
    await put_limit(db, "provider", backend, 2, by="")
    assert [(await take_share(db, server, "one", under_way=0)).share for server in servers] == [2, 2, 2]
    await put_limit(db, "provider", f"{backend}@b", 1, by="")
    assert [(await take_share(db, server, "one", under_way=0)).share for server in servers] == [2, 2, 1]


async def test_who_was_silent_for_too_long_begins_nothing_while_others_have_its_places(
    databases: list[Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    db = databases[0]
    await put_limit(db, "provider", PROVIDER, 3, by="")
    assert (await take_share(db, PROVIDER, "silent", under_way=0)).share == 3
    with monkeypatch.context() as later:
        later.setattr(provider_shares, "LEASE_S", -1.0)
        assert (await take_share(db, PROVIDER, "other", under_way=0)).share == 3

    assert (await take_share(db, PROVIDER, "silent", under_way=2)).share == 0  # both places are in use twice
    part = (await take_share(db, PROVIDER, "other", under_way=3)).share
    assert part == 1  # and go to who comes back, as fast as calls end
    assert (await take_share(db, PROVIDER, "other", under_way=1)).share == 1
    assert (await take_share(db, PROVIDER, "silent", under_way=2)).share == 1


async def test_above_a_limit_that_is_lowered_no_call_begins(databases: list[Database]) -> None:
    db = databases[0]
    await put_limit(db, "provider", PROVIDER, 4, by="")
    await take_share(db, PROVIDER, "a", under_way=0)
    await take_share(db, PROVIDER, "b", under_way=0)
    assert (await take_share(db, PROVIDER, "a", under_way=2)).share == 2
    assert (await take_share(db, PROVIDER, "b", under_way=2)).share == 2

    await put_limit(db, "provider", PROVIDER, 2, by="")
    assert (await take_share(db, PROVIDER, "a", under_way=2)).share == 0
    assert (await take_share(db, PROVIDER, "b", under_way=1)).share == 0
    assert (await take_share(db, PROVIDER, "a", under_way=0)).share == 1
    assert (await take_share(db, PROVIDER, "b", under_way=1)).share == 1


async def test_where_there_are_more_processes_than_places_none_is_left_out_however_long_calls_take(
    databases: list[Database],
) -> None:
    """Each second every process asks for its share and begins what it may; one always has more to do."""
    db, call_s, limit = databases[0], 7, 2
    await put_limit(db, "provider", PROVIDER, limit, by="")
    ends: dict[str, list[int]] = {name: [] for name in ("a", "b", "c", "d", "e")}
    begun = Counter[str]()
    waits_from = dict.fromkeys(ends, 0)
    for second in range(10 * call_s):
        for name, until_second in ends.items():
            under_way = [end for end in until_second if end > second]
            terms = await take_share(
                db, PROVIDER, name, under_way=len(under_way), waited_s=float(second - waits_from[name])
            )
            assert terms.share is not None
            if terms.share > len(under_way):
                under_way += [second + call_s] * (terms.share - len(under_way))
                begun[name] += 1
                waits_from[name] = second
            ends[name] = under_way
        assert sum(map(len, ends.values())) <= limit
    assert all(begun[name] >= 3 for name in ends), begun  # of four, if all of it could be divided


async def test_a_process_under_load_gives_up_a_place_for_one_that_comes(
    databases: list[Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its calls follow each other without a gap: a place that is free for a moment must not be taken again."""
    monkeypatch.setattr(rate_limits, "_FRESH_S", 0.05)
    await put_limit(databases[0], "provider", PROVIDER, 2, by="")
    loaded, comes = RateLimits({}, {}), RateLimits({}, {})
    loaded.share_with(databases[0])
    comes.share_with(databases[1])
    has_come = asyncio.Event()

    async def call_on_and_on(number: int) -> None:
        while not has_come.is_set():
            async with loaded.slot(PROVIDER, str(number)).reserve(no_word):
                await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as calls:
        for number in range(40):
            calls.create_task(call_on_and_on(number))
        await until(lambda: loaded.count_under_way().get(PROVIDER) == 2, "both places are taken")
        async with comes.slot(PROVIDER, "late").reserve(no_word):
            has_come.set()
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()}, "both have given back their shares")


async def set_clock_ahead(db: Database, table: str, column: str) -> None:
    """Leave the rows as a process does whose clock was a day ahead, and is right again."""
    ahead = to_time_text(datetime.now(UTC) + timedelta(days=1))
    async with db.session() as session:
        await session.execute(text(f"UPDATE {table} SET {column} = :ahead"), {"ahead": ahead})
        await session.commit()


async def test_a_hold_by_a_clock_that_was_ahead_holds_nobody(databases: list[Database]) -> None:
    db = databases[0]
    await hold_provider(db, PROVIDER, 20)
    await set_clock_ahead(db, "provider_holds", "hold_until")
    assert (await take_share(db, PROVIDER, "a", under_way=0)).hold_s == 0.0

    await hold_provider(db, PROVIDER, 20)  # what it asks for now counts all the same

    assert 10 < (await take_share(db, PROVIDER, "a", under_way=0)).hold_s <= 20


async def test_the_share_of_a_process_killed_with_its_clock_ahead_ends_with_its_lease(
    databases: list[Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    db = databases[0]
    await put_limit(db, "provider", PROVIDER, 3, by="")
    await take_share(db, PROVIDER, "killed", under_way=0)
    await set_clock_ahead(db, "provider_shares", "seen_at")
    assert (await take_share(db, PROVIDER, "b", under_way=0)).share == 0  # it may live: it has a lease from now on

    monkeypatch.setattr(provider_shares, "LEASE_S", -1.0)  # that is over

    assert (await take_share(db, PROVIDER, "b", under_way=0)).share == 3


async def test_calls_of_three_processes_are_never_more_than_the_limit_and_all_are_made(
    databases: list[Database],
) -> None:
    await put_limit(databases[0], "provider", PROVIDER, 3, by="")
    under_way = most = made = 0

    async def call(limits: RateLimits, run_id: str) -> None:
        nonlocal under_way, most, made
        async with limits.slot(f"{PROVIDER}@server", run_id).reserve(no_word):
            under_way += 1
            most = max(most, under_way)
            for _ in range(200):
                await asyncio.sleep(0)
            under_way -= 1
            made += 1

    processes = [RateLimits((("*", 16),), ()) for _ in databases]
    for limits, db in zip(processes, databases, strict=True):
        limits.share_with(db)
    await asyncio.gather(*(call(limits, str(number)) for limits in processes for number in range(6)))

    assert (most, made, under_way) == (3, 18, 0)


async def test_what_a_provider_asks_of_one_process_holds_all(databases: list[Database]) -> None:
    first, second, _ = databases
    await hold_provider(first, PROVIDER, 60)
    await hold_provider(first, PROVIDER, 1)  # a shorter one changes nothing

    limits = RateLimits((("*", 16),), ())
    limits.share_with(second)
    waiting = asyncio.create_task(limits.enter(PROVIDER, "run", no_word))
    while limits.find_reason("run") is None:
        await asyncio.sleep(0.01)
    assert str(limits.find_reason("run")).startswith("Waits for openai: too many requests, until ")
    waiting.cancel()
    await asyncio.wait((waiting,))


async def test_nobody_calls_while_it_is_not_known_how_many_may(
    databases: list[Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And whoever waits goes on by itself once it is."""
    is_away = asyncio.Event()
    is_away.set()

    async def take(*args: Any, **more: Any) -> ProviderTerms:
        if is_away.is_set():
            raise StoreUnavailable("The database is away.")
        return await take_share(*args, **more)

    monkeypatch.setattr(rate_limits, "take_share", take)
    reports: list[str] = []

    async def report(wait: ProviderWait) -> None:
        reports.append(wait.text)

    limits = RateLimits({}, {})
    limits.share_with(databases[0])
    entering = asyncio.create_task(limits.enter(PROVIDER, "run", report))
    await until(lambda: reports, "the call waits and says why")
    is_away.clear()
    await entering
    assert (reports, limits.count_under_way()) == (
        ["Waits until the limits for all can be read; it is tried again."],
        {PROVIDER: 1},
    )
    limits.leave(PROVIDER)
