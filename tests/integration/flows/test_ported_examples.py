"""The examples that were programs for DBOS, Temporal and Prefect: tested as a user would, with time that is skipped."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from holdfast import run_flow, send_event, start_flow
from holdfast.testing import SimulatedCrash, crash_at, memory_store, skip_time

EXAMPLES = Path(__file__).parents[3] / "examples"
PORTED = ("checkout", "subscription", "pipeline")
STAGES = ("pack", "send", "deliver")


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where the types of recorded results and errors are found
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def store() -> Any:
    return memory_store()


async def test_an_order_that_is_paid_is_delivered(store: Any) -> None:
    checkout = load("checkout")
    await start_flow(checkout.checkout, "lamp", 1990, run_id="o", store=store)
    await send_event("o", "payment", "card 1", store=store)
    with skip_time():
        assert await run_flow(checkout.checkout, "lamp", 1990, run_id="o", store=store) == "delivered"
    number = "o:create order"
    assert checkout.ledger == [
        f"order {number}",
        "reserve lamp",
        "book 19.9 by card 1",
        *(f"{stage} {number}" for stage in STAGES),
    ]


@pytest.mark.parametrize("payment", ["never", "declined"])
async def test_an_order_that_is_not_paid_gives_back_what_it_reserved(store: Any, payment: str) -> None:
    checkout = load("checkout")
    await start_flow(checkout.checkout, "lamp", 1990, run_id="o", store=store)
    if payment == "declined":
        await send_event("o", "payment", None, store=store)
    with skip_time() as clock:
        assert await run_flow(checkout.checkout, "lamp", 1990, run_id="o", store=store) == "cancelled: NotPaid"
    assert checkout.ledger[1:] == ["reserve lamp", "release lamp"]
    assert (clock.skipped_s >= checkout.PAY_WITHIN.total_seconds()) == (payment == "never")


async def test_what_is_sold_out_is_tried_once_and_releases_nothing(store: Any) -> None:
    checkout = load("checkout")
    assert await run_flow(checkout.checkout, "unicorn", 1, store=store) == "cancelled: SoldOut"
    assert [line.split()[0] for line in checkout.ledger] == ["order"]


@pytest.mark.parametrize("step", ["reserve", "book payment", "send"])
async def test_a_crash_after_a_call_repeats_that_call_alone(store: Any, step: str) -> None:
    checkout = load("checkout")
    await start_flow(checkout.checkout, "lamp", 1990, run_id="o", store=store)
    await send_event("o", "payment", "card 1", store=store)
    with skip_time():
        with crash_at(step), pytest.raises(SimulatedCrash):
            await run_flow(checkout.checkout, "lamp", 1990, run_id="o", store=store)
        assert await run_flow(checkout.checkout, "lamp", 1990, run_id="o", store=store) == "delivered"
    assert len(checkout.ledger) == 7
    assert len(set(checkout.ledger)) == 6


async def test_a_subscription_of_a_year_takes_no_time_to_test(store: Any) -> None:
    subscription = load("subscription")
    month = 30 * 24 * 3600.0
    with skip_time() as clock:
        assert await run_flow(subscription.subscription, "c", 900, 12, month, run_id="c", store=store) == 12 * 900
    assert subscription.charges == ["c 900"] * 12
    assert clock.skipped_s >= 12 * month - 60


async def test_a_subscription_changes_its_price_and_ends_by_events(store: Any) -> None:
    subscription = load("subscription")
    arguments = ("c", 900, 12, 3600.0)
    await start_flow(subscription.subscription, *arguments, run_id="c", store=store)
    await send_event("c", "change", {"kind": "price", "cents": 1200}, store=store)
    with skip_time():
        with crash_at("charge", "recorded"), pytest.raises(SimulatedCrash):
            await run_flow(subscription.subscription, *arguments, run_id="c", store=store)
        await send_event("c", "change", {"kind": "cancel"}, store=store)
        assert await run_flow(subscription.subscription, *arguments, run_id="c", store=store) == 1200
    assert subscription.charges == ["c 1200", "mail to c: goodbye"]


async def test_a_card_that_is_declined_is_not_tried_again(store: Any) -> None:
    subscription = load("subscription")
    with skip_time():
        assert await run_flow(subscription.subscription, "c", 20_000, 12, 10.0, store=store) == 0
    assert subscription.charges == ["mail to c: your card was declined"]


async def test_a_pipeline_goes_on_after_a_crash_and_names_what_is_missing(store: Any) -> None:
    pipeline = load("pipeline")
    sources = ["north", "south", "atlantis"]
    with skip_time():
        with crash_at("load", "before"), pytest.raises(SimulatedCrash):
            await run_flow(pipeline.pipeline, sources, run_id="p", store=store)
        said = await run_flow(pipeline.pipeline, sources, run_id="p", store=store)
    assert said == "60 from 2 sources, 1 missing"
    assert sorted(pipeline.calls) == [
        "extract atlantis",
        "extract north",
        "extract south",
        "extract south",
        "load",
    ]


def test_the_ported_programs_have_types() -> None:
    files = [str(EXAMPLES / f"{name}.py") for name in PORTED]
    checked = subprocess.run([sys.executable, "-m", "mypy", "--strict", *files], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
