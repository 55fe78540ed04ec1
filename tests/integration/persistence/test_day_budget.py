"""F3: the day's limit is one row, changed with the ledger: exact over processes, and as quick after many calls."""

import asyncio
import contextlib
import sqlite3
import uuid
from typing import Any

import pytest
from sqlalchemy import text
from tests.support.stores import finish, start_python

from holdfast.errors import RowRefused
from holdfast.persistence.db import Database
from holdfast.persistence.statements import NewLedgerRow, now_text, reserve_money, settle_money
from holdfast.runtime.checkpoint.base import Statement
from holdfast.runtime.events import create_event
from holdfast.runtime.stores import open_journal

RUN = "r"
DAY_LIMIT = 3_000_000
SPENDER = """
import asyncio, sys
from holdfast.errors import RowRefused
from holdfast.persistence.db import Database
from tests.integration.persistence.test_day_budget import spend

async def main():
    db = Database(sys.argv[1])
    db.store
    print("ready", flush=True)
    sys.stdin.readline()
    print(sum(await asyncio.gather(*(spend(db, f"{sys.argv[2]}-{n}") for n in range(3)))))
    await db.dispose()

asyncio.run(main())
"""


def entry(amount: int = 1_000_000, run_id: str = RUN, **options: Any) -> NewLedgerRow:
    values: dict[str, Any] = {"phase_limit": None, "day_limit": DAY_LIMIT, "is_simulated": False, **options}
    facts = {"phase_key": "p", "attempt": 1, "step_key": "s", "model": "m", "persona": "n"}
    return NewLedgerRow(id=uuid.uuid4().hex, run_id=run_id, amount=amount, **facts, **values)


async def spend(db: Database, journal_id: str) -> bool:
    """Reserve a dollar in the transaction of an event, each time in another journal, as other runs' calls are."""
    async with open_journal(db.store) as journal:
        try:
            await journal.append(journal_id, [create_event(journal_id, "x")], rows=reserve_money(entry()))
        except RowRefused:
            return False
    return True


@pytest.fixture
async def db(database_url: str) -> Any:
    db = Database(database_url)
    await db.init_schema()
    async with db.session() as session:
        await session.execute(text("INSERT INTO workflow_templates (id, hash) VALUES ('t', 'h')"))
        await session.execute(text("INSERT INTO runs (id, template_id) VALUES ('r', 't')"))
        await session.commit()
    yield db
    await db.dispose()


async def read(db: Database, sql: str) -> Any:
    async with db.session() as session:
        return (await session.execute(text(sql))).scalar()


async def test_f3_twelve_calls_of_four_processes_do_not_pass_a_limit_for_three(db: Database, database_url: str) -> None:
    processes = [start_python(SPENDER, database_url, number) for number in range(4)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()

    passed = [int(await asyncio.to_thread(finish, process)) for process in processes]

    assert sum(passed) == 3
    assert await read(db, "SELECT COUNT(*) FROM ledger") == 3
    assert await read(db, "SELECT spent_micros FROM budget_days") == DAY_LIMIT


async def test_what_a_call_did_not_need_is_free_again_and_play_money_is_apart(db: Database) -> None:
    async with open_journal(db.store) as journal:

        async def write(*rows: Any) -> None:
            await journal.append("j", [create_event("j", "x")], rows=rows)

        first = entry(3_000_000)
        await write(*reserve_money(first))
        with pytest.raises(RowRefused):
            await write(*reserve_money(entry(1)))
        await write(*reserve_money(entry(9_000_000, is_simulated=True, day_limit=None)))
        settled = settle_money(first.id, cost_micros=500_000, input_tokens=1, output_tokens=1)
        await write(*settled)
        with pytest.raises(RowRefused):
            await write(*settled)
        await write(*reserve_money(entry(2_500_000)))
        await write(*reserve_money(entry(7, day_limit=None)))  # counted where no limit is set, too

    assert await read(db, "SELECT spent_micros FROM budget_days") == 3_000_007
    assert await read(db, "SELECT day FROM budget_days") == now_text()[:10]


@pytest.mark.parametrize("is_settled", [False, True], ids=["reserve", "settle"])
async def test_a_call_reads_as_many_rows_after_ten_thousand_others_as_after_a_thousand(
    db: Database, is_settled: bool
) -> None:
    first = entry()
    async with open_journal(db.store) as journal:
        await journal.append("j", [create_event("j", "x")], rows=reserve_money(first))

    async def measure() -> int:
        settled = settle_money(first.id, cost_micros=1, input_tokens=1, output_tokens=1)
        statements = settled if is_settled else reserve_money(entry())
        return sum([await count_work(db, statement) for statement in statements])

    await spend_elsewhere(db, 0, 1_000)
    after_few = await measure()
    await spend_elsewhere(db, 1_000, 10_000)
    assert await measure() == after_few > 0
    many = Statement("UPDATE ledger SET model = 'm' WHERE is_simulated = :no", {"no": 0})
    assert await count_work(db, many) > 10_000  # what is counted grows where all rows are read


async def spend_elsewhere(db: Database, first: int, end: int) -> None:
    """Let as many other runs have made a call today, and others on as many days before."""
    numbers = (
        "WITH RECURSIVE numbers (n) AS "
        "(SELECT CAST(:first AS INTEGER) UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :end)"
    )
    others = (
        "INSERT INTO runs (id, template_id) {} SELECT 'o' || n, 't' FROM numbers",
        "INSERT INTO ledger (id, run_id, phase_key, attempt, step_key, state, amount_micros, reserved_micros, model, "
        "persona, day, is_simulated, created_at) {} "
        "SELECT 'o' || n, 'o' || n, 'p', 1, 's', 'settled', 1, 1, 'm', 'n', :day, 0, :day FROM numbers",
        "INSERT INTO budget_days (day, spent_micros) {} SELECT 'd' || n, 1 FROM numbers",
    )
    async with db.session() as session:
        for other in others:
            params = {"first": first, "end": end, "day": now_text()[:10]}
            used = {name: value for name, value in params.items() if f":{name}" in other + numbers}
            await session.execute(text(other.format(numbers)), used)
        await session.execute(text("ANALYZE"))
        await session.commit()


async def count_work(db: Database, statement: Statement) -> int:
    """Count the steps of a statement's program on SQLite, and the rows it reads on Postgres; nothing is changed."""
    if db.path is not None:
        steps = [0]

        def count_step() -> int:
            steps[0] += 1
            return 0

        with contextlib.closing(sqlite3.connect(db.path)) as database:
            database.set_progress_handler(count_step, 1)
            database.execute(statement.sql, dict(statement.params))
            database.rollback()
        return steps[0]
    async with db.session() as session:
        explain = text(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {statement.sql}")
        (plan,) = (await session.execute(explain, dict(statement.params))).scalar_one()
        await session.rollback()
    return count_rows(plan["Plan"])


def count_rows(node: dict[str, Any]) -> int:
    own = node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return int(own * node["Actual Loops"]) + sum(count_rows(part) for part in node.get("Plans", ()))
