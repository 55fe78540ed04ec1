"""What was perhaps paid, as the server reads it: also of a run whose owner died."""

from sqlalchemy import text

from holdfast.persistence.db import Database
from holdfast.persistence.listings import RunFilter, list_page, read_money
from holdfast.persistence.models import LedgerRow, RunRow, WorkflowTemplateRow
from holdfast.persistence.runs import list_unanswered, read_spent
from holdfast.runtime.stores import open_store

NOW = "2026-01-01T00:00:00Z"
RUN_ID = "r1"


async def make_run(db: Database) -> None:
    await db.init_schema()
    async with db.session() as session, session.begin():
        session.add(WorkflowTemplateRow(id="t", name="w", version=1, hash="h", definition="{}", created_at=NOW))
        await session.flush()
        template = {"template_id": "t", "template_hash": "h", "workflow": "w", "repo_path": "/x", "base_branch": "main"}
        session.add(RunRow(id=RUN_ID, state="running", **template, created_at=NOW, updated_at=NOW))
        await session.flush()
        call = {"run_id": RUN_ID, "phase_key": "plan", "step_key": "plan/1/turn1/m0", "day": NOW[:10]}
        session.add(LedgerRow(id="open", amount_micros=30, state="reserved", created_at=NOW, **call))


async def read_all(db: Database) -> tuple[list[int], list[str]]:
    """Read in all ways what is perhaps paid, and for which calls."""
    [listed] = await list_page(db, RunFilter(), limit=5)
    money = await read_money(db, since_day=NOW[:10])
    spent = await read_spent(db, RUN_ID)
    amounts = [spent.unanswered_micros, listed.spent.unanswered_micros, sum(money.unanswered_by_day.values())]
    assert (spent.reserved_micros, listed.spent.reserved_micros) == (30, 30)
    return amounts, [row.id for row in await list_unanswered(db, RUN_ID, limit=5)]


async def test_the_call_of_a_dead_owner_was_perhaps_paid_before_anybody_takes_the_run_over(database_url: str) -> None:
    db = Database(database_url)
    await make_run(db)
    store = open_store(database_url)
    try:
        claim = store.claim(RUN_ID)
        driven = await read_all(db)
        if db.path is None:  # another machine has it, of which nobody hears any more
            assert store.leases is not None
            store.leases.remove([claim])
            async with db.session() as session, session.begin():
                await session.execute(text("UPDATE journal_runs SET lease_until = clock_timestamp()"))
            assert await read_all(db) == ([30, 30, 30], ["open"])
        store.release(claim)
        ownerless = await read_all(db)
    finally:
        store.close()
        await db.dispose()

    assert driven == ([0, 0, 0], [])
    assert ownerless == ([30, 30, 30], ["open"])
