"""The line of a schedule's flows: whose turn it is, also of many, and of two who look at the same time."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.support.flow_stores import FlowStore, new_flow_store
from tests.support.postgres_server import fresh_schema
from tests.support.progress_limit import waiting_until

from holdfast.flows.service.flow_look import call_up
from holdfast.runtime import flow_line
from holdfast.runtime.checkpoint.base import Statement
from holdfast.runtime.journal import Journal
from holdfast.runtime.stores import open_journal, open_store

_IN_LINE = (
    "INSERT INTO flow_runs (run_id, flow, status, waits_for, schedule, created_at) "
    "VALUES (:run_id, 'f', 'pending', 'earlier runs', :schedule, :at)"
)
_OPEN = "INSERT INTO flow_runs (run_id, flow, status, schedule) VALUES (:run_id, 'f', 'running', :schedule)"
_LOCK = 77


@pytest.fixture(params=["path", "postgres"])
def flows(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FlowStore]:
    with new_flow_store(request.param, tmp_path, lambda: request.getfixturevalue("postgres_url")) as store:
        yield store


@pytest.fixture
def url(postgres_url: str) -> Iterator[str]:
    with fresh_schema(postgres_url) as url:
        open_store(url).close()
        yield url


async def write(journal: Journal, sql: str, **params: Any) -> None:
    await journal.append(params["run_id"], [], rows=[Statement(sql, params)])


async def read_due(journal: Journal) -> list[str]:
    sql = "SELECT run_id FROM flow_runs WHERE wake_at IS NOT NULL ORDER BY run_id"
    return [run_id for (run_id,) in await journal.query(lambda store: store.read_rows(sql, {}))]


async def test_the_first_of_each_schedule_is_called_up_if_no_other_is_open(flows: FlowStore) -> None:
    async with open_journal(flows.target) as journal:
        for schedule in ("busy", "free"):
            for number in (3, 1, 2):
                await write(journal, _IN_LINE, run_id=f"{schedule}-{number}", schedule=schedule, at=number)
        await write(journal, _OPEN, run_id="busy-0", schedule="busy")

        for _ in range(2):
            await call_up(journal)

        assert await read_due(journal) == ["free-1"]
        assert flow_line.LINE_JOURNAL not in await journal.query(lambda store: store.list_runs())


async def test_two_who_look_at_once_call_up_one(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def called_up_slowly(run_id: str) -> Statement:
        change = called_up(run_id)
        return replace(change, sql=f"{change.sql} RETURNING pg_advisory_xact_lock({_LOCK})")

    called_up = flow_line.called_up
    monkeypatch.setattr(flow_line, "called_up", called_up_slowly)
    stores = [open_store(url) for _ in range(2)]
    async with open_journal(stores[0]) as one, open_journal(stores[1]) as other:
        with psycopg.connect(url, autocommit=True) as outside:
            outside.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
            await write(other, _IN_LINE, run_id="b", schedule="s", at=2)
            looking = [asyncio.create_task(call_up(one))]
            await until_waiting(outside, 1)
            await write(other, _IN_LINE, run_id="a", schedule="s", at=1)  # made earlier by its maker's clock
            looking.append(asyncio.create_task(call_up(other)))
            await until_waiting(outside, 2)
            outside.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))
            await asyncio.gather(*looking)

        assert await read_due(one) == ["b"]
    for store in stores:
        store.close()


async def until_waiting(outside: psycopg.Connection[Any], count: int) -> None:
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with waiting_until(f"{count} wait for a lock"):
        while outside.execute(waiting).fetchone() != (count,):
            await asyncio.sleep(0.01)


def test_those_in_a_line_are_not_compared_with_one_another(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("INSERT INTO flow_runs (run_id, status, schedule) VALUES ('open', 'running', 's')")
        connection.execute(
            "INSERT INTO flow_runs (run_id, waits_for, schedule, created_at) "
            "SELECT n::text, 'earlier runs', 's', n FROM generate_series(1, 300) AS n"
        )
        connection.execute("ANALYZE flow_runs")
        found = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {flow_line.FIRST_IN_LINE}").fetchone()
    assert found is not None

    assert sum(list_compared(found[0] if isinstance(found[0], list) else json.loads(found[0]))) <= 300


def list_compared(plan: Any) -> Iterator[int]:
    """How many rows each join of a plan has looked at in vain."""
    for value in plan.values() if isinstance(plan, dict) else plan:
        if isinstance(value, dict | list):
            yield from list_compared(value)
    if isinstance(plan, dict):
        yield int(plan.get("Rows Removed by Join Filter", 0) * plan.get("Actual Loops", 1))
