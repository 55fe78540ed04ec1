"""Flows that are started in one place and run in another: arguments and results keep their types."""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.support.flow_stores import FlowStore, new_flow_store

from holdfast import Context, FlowHandle, Runtime, SyncContext, flow, get_flow, run_flow, start_flow
from holdfast.errors import Nondeterminism, PayloadInvalid
from holdfast.runtime.checkpoint import InMemoryCheckpointer


@dataclass
class Order:
    number: int
    price: Decimal
    due: dt.date


ORDER = Order(7, Decimal("12.50"), dt.date(2026, 11, 18))


@pytest.fixture(params=["path", "postgres"])
def flows(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FlowStore]:
    with new_flow_store(request.param, tmp_path, lambda: request.getfixturevalue("postgres_url")) as store:
        yield store


@flow("postpone")
async def postpone(ctx: Context, order: Order, by: dt.timedelta, note: Any = None) -> Order:
    return await ctx.step("postpone", shift, order, by)


def shift(order: Order, by: dt.timedelta) -> Order:
    return Order(order.number, order.price, order.due + by)


@flow("postpone plainly")
def postpone_plainly(ctx: SyncContext, order: Order) -> dt.date:
    return ctx.step.options(timeout=30)("postpone", shift, order, by=dt.timedelta(1)).due


@flow("echo")
async def echo(ctx: Context, value: Any) -> Any:
    return value


async def test_arguments_and_results_are_those_of_the_declared_types(flows: FlowStore) -> None:
    later = Order(7, Decimal("12.50"), dt.date(2026, 11, 20))
    handle = await start_flow(postpone, ORDER, dt.timedelta(2), run_id="r", store=flows.target)

    async with Runtime(flows.target, flows=[postpone, postpone_plainly]) as runtime:
        assert await handle.result() == later
        assert await get_flow("r", store=flows.target).result() == later  # found by the name of its flow
        plain = await runtime.start(postpone_plainly, ORDER, run_id="plain")
        assert await plain.result() == dt.date(2026, 11, 19)

    assert await run_flow(postpone, ORDER, dt.timedelta(2), run_id="r", store=flows.target) == later
    with pytest.raises(Nondeterminism):
        await start_flow(postpone, later, dt.timedelta(2), run_id="r", store=flows.target)


async def test_a_program_that_does_not_know_the_flow_starts_it_and_gets_json_data(tmp_path: Path) -> None:
    store = tmp_path / "flows.db"
    stranger = await start_flow("postpone", ORDER, dt.timedelta(0), run_id="r", store=store)
    async with Runtime(store, flows=[postpone]):
        await stranger.result()

    unknown: FlowHandle[Any] = FlowHandle("r", store)
    recorded = [event.payload async for event in unknown.events()][-1]["result"]
    assert recorded == {"number": 7, "price": "12.50", "due": "2026-11-18"}


@pytest.mark.parametrize("value", [{"$type": "x"}, {"$type": "builtins.int", "$value": 3}, {"$value": 1}])
async def test_data_that_looks_like_a_record_of_ours_comes_back_as_it_was(tmp_path: Path, value: Any) -> None:
    store = tmp_path / "flows.db"
    async with Runtime(store, flows=[echo]):
        assert await (await start_flow(echo, value, store=store)).result() == value


async def test_what_cannot_be_recorded_is_refused_before_anything_is_written() -> None:
    store = InMemoryCheckpointer()

    with pytest.raises(PayloadInvalid, match=r"Argument 1 of flow 'echo' is a builtins.object"):
        await start_flow(echo, object(), run_id="r", store=store)

    assert store.list_runs() == []
