"""F3: the day's limit is one row, changed with the ledger: exact over processes, and as quick after many calls."""

import asyncio
import uuid
from typing import Any

import pytest
from sqlalchemy import text
from tests.support.stores import finish, start_python

from holdfast.errors import RowRefused
from holdfast.persistence.db import Database
from holdfast.persistence.statements import NewLedgerRow, now_text, reserve_money, settle_money
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


async def test_a_call_does_not_read_what_others_have_spent(db: Database) -> None:
    """What a reservation looks at is the run's own rows and the day's one row: no other rows are summed up."""
    statement = reserve_money(entry())[1]

    assert "ledger" not in statement.sql
    assert "past_spending" not in statement.sql
