"""A database as the first schema left it, filled in every column, becomes a current one and loses nothing."""

from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import BigInteger, Engine, Integer, MetaData, Row, Table, select

from holdfast.persistence import schema
from holdfast.persistence.db import Database
from holdfast.persistence.event_feed import find_moved, give_positions, needs_positions, read_stretches
from holdfast.persistence.listings import RunFilter, list_due, list_page, read_money
from holdfast.persistence.models import Base
from holdfast.persistence.raw_sql import query
from holdfast.persistence.runs import Spending, read_approvals, read_artifacts, read_spent
from holdfast.runtime.events import create_event
from holdfast.runtime.stores import open_journal

FILLED = (
    "workflow_templates",
    "agent_personas",
    "runs",
    "run_phases",
    "run_bindings",
    "approvals",
    "artifacts",
    "ledger",
)
MANY = 50
RUN_EVENTS = 3


def make_first_schema(engine: Engine) -> MetaData:
    config = Config()
    config.set_main_option("script_location", str(schema._MIGRATIONS))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
    made = MetaData()
    made.reflect(engine, only=FILLED)
    return made


def to_row(table: Table, number: int) -> dict[str, Any]:
    """A value in every column; links lead to the row of the same number."""
    row: dict[str, Any] = {}
    for column in table.columns:
        target = next(iter(column.foreign_keys), None)
        if target is not None:
            row[column.name] = f"{target.column.table.name} {number}"
        elif isinstance(column.type, BigInteger | Integer):
            row[column.name] = number
        elif column.name == "id":
            row[column.name] = f"{table.name} {number}"
        elif column.name in ("definition", "shown", "findings", "error"):
            row[column.name] = '{"told": "ü \\" \' % : x"}'
        else:
            row[column.name] = f"{column.name} {number} ü ' % :x"
    return row | KNOWN.get(table.name, {})


KNOWN = {
    "runs": {"state": "running", "is_simulated": 0},
    "approvals": {"state": "pending"},
    "artifacts": {"state": "accepted"},
    "ledger": {"state": "settled"},
}


def read_all(engine: Engine, tables: MetaData) -> dict[str, list[Row[Any]]]:
    with engine.connect() as connection:
        return {
            name: list(connection.execute(select(table).order_by(*table.primary_key.columns)))
            for name, table in tables.tables.items()
        }


@pytest.fixture
def first(database_url: str) -> Any:
    """A filled database of the first schema: its object, the tables as they were, and what they held."""
    db = Database(database_url)
    if db.path is not None:
        Path(db.path).parent.mkdir(parents=True)
    for number in range(MANY):
        run_id = f"runs {number}"
        for _ in range(RUN_EVENTS):
            db.store.save_event(create_event(run_id, "agent.progress", number=number, big="x" * 20_000 * (number % 3)))
    engine = schema._make_engine(db._engine_url(is_async=False))
    tables = make_first_schema(engine)
    with engine.begin() as connection:
        for name in FILLED:
            connection.execute(tables.tables[name].insert(), [to_row(tables.tables[name], n) for n in range(MANY)])
    before = read_all(engine, tables)
    yield db, engine, tables, before
    engine.dispose()


async def test_nothing_is_lost_and_what_is_new_has_its_default(first: Any) -> None:
    db, engine, tables, before = first

    await db.init_schema()

    assert read_all(engine, tables) == before
    assert {name: len(rows) for name, rows in before.items()} == dict.fromkeys(FILLED, MANY)
    now = MetaData()
    now.reflect(engine)
    assert set(Base.metadata.tables) <= set(now.tables)
    for name in FILLED:
        added = [column for column in now.tables[name].columns if column.name not in tables.tables[name].columns]
        with engine.connect() as connection:
            for column in added:
                values = set(connection.execute(select(column)).scalars())
                assert len(values) == 1, f"{name}.{column.name}"
    assert db.store.list_events("runs 2")[-1].payload["number"] == 2
    await db.dispose()


async def test_the_money_of_rehearsals_that_were_is_marked(first: Any) -> None:
    db, engine, tables, _before = first
    runs = tables.tables["runs"]
    with engine.begin() as connection:
        connection.execute(runs.update().where(runs.c.id.in_(("runs 7", "runs 8"))).values(is_simulated=1))

    await db.init_schema()

    money = await read_money(db, since_day="")
    assert sum(money.simulated_by_day.values()) == 7 + 8
    assert sum(money.by_day.values()) == sum(range(MANY)) - (7 + 8)
    assert await read_spent(db, "runs 7") == Spending(simulated_micros=7)
    await db.dispose()


async def test_a_listing_brings_an_older_database_up_to_date_first(
    first: Any, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, _engine, _tables, _before = first
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", database_url)

    (row,) = query("SELECT SUM(is_simulated) AS played, COUNT(*) AS n FROM ledger")

    assert (int(row["played"]), row["n"]) == (0, MANY)
    await db.dispose()


async def test_the_product_works_on_what_was_there(first: Any) -> None:
    db, _engine, _tables, _before = first
    await db.init_schema()

    page = await list_page(db, RunFilter(), limit=100)
    due = await list_due(db)
    money = await read_money(db, since_day="")
    if needs_positions(db):
        async with open_journal(db.store) as journal:
            await give_positions(journal, await find_moved(db))

    assert len(page) == len(due) == MANY
    assert len(await read_approvals(db, state="pending")) == MANY
    assert len(await read_artifacts(db, "runs 7")) == 1
    assert (await read_spent(db, "runs 7")).total_micros == 7
    assert sum(money.by_day.values()) == sum(range(MANY))
    stretches = await read_stretches(db, 0, limit=1000)
    assert sum(stretch.last_seq - stretch.first_seq + 1 for stretch in stretches) == RUN_EVENTS * MANY
    await db.dispose()
