"""Flows with a schedule in code: each time starts one run, whoever looks and however often, and what was missed."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.flow_stores import FlowStore
from tests.support.progress_limit import until, waiting_until

from holdfast import Context, Runtime, flow, get_flow, list_flows, start_flow
from holdfast.errors import ConfigInvalid, ScheduleInvalid
from holdfast.flows.service.flow_registry import list_definitions
from holdfast.flows.service.flow_schedule import Missed, Overlap, ScheduledFlows
from holdfast.runtime.checkpoint import SQLiteCheckpointer
from holdfast.testing import memory_store, skip_time

pytestmark = pytest.mark.usefixtures("own_registry")
NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
HALF_PAST_S = (NOON + timedelta(minutes=30)).timestamp()
HOUR_S = 3600.0


def new_process(store: SQLiteCheckpointer) -> ScheduledFlows:
    return ScheduledFlows(store, list_definitions(), poll_s=1.0)


async def list_ids(store: SQLiteCheckpointer) -> list[str]:
    return sorted(run.run_id for run in await list_flows(store=store))


def define_hourly(missed: Missed = "skip") -> None:
    @flow("hourly", cron="0 * * * *", missed=missed)
    async def hourly(ctx: Context) -> str:
        return ctx.run_id


async def test_each_time_starts_one_run_whoever_looks_and_nothing_is_started_for_times_before_the_first_look() -> None:
    define_hourly()
    store = memory_store()
    with skip_time(start=HALF_PAST_S) as clock:
        one, other = new_process(store), new_process(store)
        assert await one.fire_due() == 1.0
        assert await list_ids(store) == []
        await other.fire_due()
        clock.advance(HOUR_S / 2)
        await asyncio.gather(one.fire_due(), other.fire_due())
        await new_process(store).fire_due()
        clock.advance(HOUR_S)
        await asyncio.gather(other.fire_due(), one.fire_due())

    assert await list_ids(store) == ["hourly@2026-01-05T1300Z", "hourly@2026-01-05T1400Z"]


@pytest.mark.parametrize(("missed", "hours"), [("skip", []), ("once", [17]), ("all", [14, 15, 16, 17])])
async def test_what_nobody_started_in_time_is_skipped_or_made_up_for(missed: Missed, hours: list[int]) -> None:
    define_hourly(missed)
    store = memory_store()
    with skip_time(start=HALF_PAST_S) as clock:
        before = new_process(store)
        await before.fire_due()
        clock.advance(HOUR_S / 2)
        await before.fire_due()
        clock.advance(4.5 * HOUR_S)
        later = new_process(store)
        await later.fire_due()
        await later.fire_due()

    assert await list_ids(store) == [f"hourly@2026-01-05T{hour}00Z" for hour in (13, *hours)]


async def test_a_restart_over_a_time_loses_nothing() -> None:
    define_hourly()
    store = memory_store()
    with skip_time(start=HALF_PAST_S) as clock:
        await new_process(store).fire_due()
        clock.advance(HOUR_S / 2 + 30)
        await new_process(store).fire_due()  # also if there was no run before
        clock.advance(HOUR_S)
        await new_process(store).fire_due()

    assert await list_ids(store) == ["hourly@2026-01-05T1300Z", "hourly@2026-01-05T1400Z"]


async def until_completed(flows: FlowStore, count: int) -> None:
    with waiting_until(f"{count} flows are completed"):
        while len(await list_flows(store=flows.target, status="completed")) < count:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(("overlap", "hours"), [("skip", [13, 16]), ("queue", [13, 14, 15, 16])])
async def test_overlaps_are_skipped_or_stand_in_line(flows: FlowStore, overlap: Overlap, hours: list[int]) -> None:
    log, gate = list[str](), asyncio.Event()

    @flow("hourly", cron="0 * * * *", overlap=overlap, missed="all")
    async def hourly(ctx: Context, at: datetime) -> None:
        log.append(f"{at.hour} begins")
        await ctx.step("work", gate.wait)
        log.append(f"{at.hour} ends")

    with skip_time(start=HALF_PAST_S) as clock:
        starts = ScheduledFlows(flows.target, list_definitions(), poll_s=1.0)
        await starts.fire_due()
        async with Runtime(flows.target, flows=[], poll_s=0.02):  # the store stays open
            for _ in range(3):
                clock.advance(HOUR_S)
                await starts.fire_due()
        async with Runtime(flows.target, flows=[hourly], poll_s=0.02):
            await until(lambda: log, "the first one has begun")
            gate.set()
            await until_completed(flows, len(hours) - 1)
            clock.advance(HOUR_S / 4)
            again = ScheduledFlows(flows.target, list_definitions(), poll_s=1.0)
            await again.fire_due()  # in a new process: what was skipped is not missed
            clock.advance(HOUR_S / 4)
            await again.fire_due()
            await until_completed(flows, len(hours))

    assert log == [f"{hour} {word}" for hour in hours for word in ("begins", "ends")]


async def test_a_runtime_starts_and_drives_them_with_the_time_by_the_clock_of_the_zone(flows: FlowStore) -> None:
    @flow("morning", cron="0 9 * * *", zone="Europe/Berlin", missed="once")
    async def morning(ctx: Context, at: datetime) -> str:
        return await ctx.step("day", lambda: f"{at:%d %H:%M %Z}")

    with skip_time(start=NOON.timestamp()) as clock:
        today = NOON.replace(hour=8)
        first = await start_flow(morning, today, run_id="morning@2026-01-05T0800Z", store=flows.target)
        async with Runtime(flows.target, flows=[morning], poll_s=0.02):
            assert await first.result() == "05 08:00 UTC"
            clock.advance(20 * HOUR_S)
            while len(await list_flows(store=flows.target, status="completed")) < 2:
                await asyncio.sleep(0.01)

    assert await get_flow("morning@2026-01-06T0800Z", store=flows.target).result() == "06 08:00 UTC"


async def test_what_cannot_be_started_is_tried_again_and_keeps_no_other(caplog: pytest.LogCaptureFixture) -> None:
    define_hourly()

    @flow("early", cron="0 * * * *")
    async def early(ctx: Context) -> None: ...

    store = memory_store()
    with skip_time(start=HALF_PAST_S) as clock, caplog.at_level(logging.ERROR):
        starts = new_process(store)
        await starts.fire_due()
        await start_flow("another", run_id="early@2026-01-05T1300Z", store=store)
        clock.advance(HOUR_S / 2)
        await starts.fire_due()
        assert "early" in caplog.text
        store.delete_run("early@2026-01-05T1300Z")
        await starts.fire_due()

    found = {run.run_id: run.flow for run in await list_flows(store=store)}
    assert found == {"hourly@2026-01-05T1300Z": "hourly", "early@2026-01-05T1300Z": "early"}


def test_mistakes_are_refused_where_they_stand() -> None:
    with pytest.raises(ScheduleInvalid, match="no cron line"):

        @flow("a", cron="every hour")
        async def a(ctx: Context) -> None: ...

    with pytest.raises(ScheduleInvalid, match="no time zone"):

        @flow("b", cron="0 * * * *", zone="Europe/Atlantis")
        async def b(ctx: Context) -> None: ...

    with pytest.raises(ConfigInvalid, match="the time, and no more") as refused:

        @flow("c", cron="0 * * * *")
        async def c(ctx: Context, at: datetime, region: str) -> None: ...

    assert "def c(ctx: Context, at: datetime)" in refused.value.hint
    with pytest.raises(ConfigInvalid, match="overlap of flow 'e' is one of skip, queue"):

        @flow("e", cron="0 * * * *", overlap="never")  # type: ignore[call-overload]  # as it is written by mistake
        async def e(ctx: Context) -> None: ...

    with pytest.raises(ConfigInvalid, match="skip, once, all"):

        @flow("d", cron="0 * * * *", missed="never")  # type: ignore[call-overload]  # as it is written by mistake
        async def d(ctx: Context) -> None: ...
