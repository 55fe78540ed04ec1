"""The port on which a worker shows its figures, with and without its database."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from tests.support.network import Wire, open_wire
from tests.support.postgres_server import fresh_schema

from holdfast.api.server import fleet_metrics
from holdfast.api.server.fleet_metrics import DriveMetrics, serve_metrics
from holdfast.persistence.db import Database
from holdfast.persistence.fleet import WorkerFacts, register

WORKER = SimpleNamespace(count_driven=lambda: 3, facts=SimpleNamespace(slots=8))
LEASES = SimpleNamespace(takeovers=0, missed=5)


@pytest.fixture
async def wire(postgres_url: str) -> AsyncIterator[Wire]:
    with fresh_schema(postgres_url) as url, open_wire(url) as wire:
        yield wire


@pytest.fixture
async def url(wire: Wire) -> AsyncIterator[str]:
    db = Database(wire.url)
    await db.init_schema()
    async with serve_metrics(db, cast(Any, WORKER), DriveMetrics(cast(Any, LEASES)), ("127.0.0.1", 0)) as url:
        yield url
    await db.dispose()


async def scrape(url: str) -> dict[str, float]:
    async with httpx.AsyncClient(timeout=None) as client:
        answer = await client.get(url)
    assert answer.status_code == 200
    lines = (line.rsplit(" ", 1) for line in answer.text.splitlines() if not line.startswith("#"))
    return {name: float(number) for name, number in lines}


def own_figures(figures: dict[str, float]) -> list[float]:
    names = ("holdfast_runs_driven", "holdfast_worker_slots", "holdfast_renewals_missed_total")
    return [figures[name] for name in names]


@pytest.mark.parametrize("is_silent", [False, True], ids=["refuses", "is-silent"])
async def test_a_worker_without_its_database_shows_its_own_figures_and_says_so(
    wire: Wire, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_silent: bool
) -> None:
    host = wire.host
    before = await scrape(url)
    if is_silent:
        monkeypatch.setattr(fleet_metrics, "_DATABASE_S", 0.1)
        wire.is_flowing.clear()
    else:
        wire.host = ""
        wire.cut()
    without = [await scrape(url) for _ in range(2)]
    wire.host = host
    wire.is_flowing.set()
    monkeypatch.undo()
    after = await scrape(url)

    assert [own_figures(figures) for figures in (before, *without, after)] == [[3, 8, 5]] * 4
    assert [figures["holdfast_database_up"] for figures in (before, *without, after)] == [1, 0, 0, 1]
    assert ["holdfast_fleet_due" in figures for figures in (before, *without, after)] == [True, False, False, True]
    assert not [record for record in caplog.records if record.exc_info]


async def test_free_slots_count_for_the_queues_that_their_worker_takes(
    url: str, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def count_five(_db: Database) -> tuple[dict[str, int], float]:
        return {"gpu": 5}, 1.0

    monkeypatch.setattr(fleet_metrics, "count_due", count_five)
    db = Database(wire.url)
    await register(db, WorkerFacts("alpha", "p1", "m", "1", 1, ("runs", "default"), ()))
    await register(db, WorkerFacts("beta", "p2", "m", "1", 2, ("runs",), ()))
    await db.dispose()

    figures = await scrape(url)
    by_queue = {
        name: [figures.get(f'holdfast_fleet_queue_{name}{{queue="{queue}"}}') for queue in ("default", "gpu", "runs")]
        for name in ("due", "free_slots")
    }
    assert by_queue == {"due": [0, 5, 0], "free_slots": [1, 0, 3]}
    assert (figures["holdfast_fleet_due"], figures["holdfast_fleet_free_slots"]) == (5, 3)
