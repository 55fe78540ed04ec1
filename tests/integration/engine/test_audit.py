"""`db check` finds every row that disagrees with the journal."""

import contextlib
from collections.abc import AsyncIterator

from sqlalchemy import text
from tests.support.engine_world import Turn, World, phase

from holdfast.engine.audit import check_database
from holdfast.enums import Backend
from holdfast.persistence.models import Base


async def spending(turn: Turn) -> None:
    await turn.use_model("hello")
    turn.hand_in() if turn.is_repair else turn.hand_in("{}")


async def make_run(world: World) -> str:
    """A run with something in every table."""
    result = await world.run(
        spending,
        phase("spec", risk="high"),
        "plan",
        engine={"backends": frozenset({Backend.SIMULATED})},
        budget_usd=1,
    )
    assert await check_database(world.db) == []
    world.is_damaged = True
    return str(result.run_id)


DAMAGES = [
    ("UPDATE runs SET state = 'completed'", "state"),
    ("UPDATE runs SET repo_path = '/elsewhere'", "repo_path"),
    ("UPDATE runs SET budget_micros = 9999999", "budget"),
    ("UPDATE workflow_templates SET definition = '{}'", "template"),
    ("UPDATE agent_personas SET definition = '{}'", "persona"),
    ("DELETE FROM run_bindings", "binding"),
    ("UPDATE run_phases SET state = 'completed' WHERE phase_key = 'plan'", "phase plan"),
    ("UPDATE run_phases SET state = 'running' WHERE phase_key = 'spec'", "phase spec"),
    ("UPDATE run_phases SET attempt = 5 WHERE phase_key = 'spec'", "attempt of phase spec"),
    ("DELETE FROM run_phases WHERE phase_key = 'spec'", "phase spec"),
    ("UPDATE approvals SET state = 'decided', action = 'approve'", "approval"),
    ("UPDATE approvals SET digest = 'another'", "approval"),
    ("UPDATE approvals SET deadline_at = '2020-01-01T00:00:00.000Z'", "deadline of approval"),
    ("DELETE FROM approvals", "approval"),
    ("UPDATE artifacts SET state = 'accepted' WHERE turn = 1", "artifact spec/1/artifact1"),
    ("UPDATE artifacts SET hash = 'another' WHERE turn = 2", "artifact spec/1/artifact2"),
    ("UPDATE artifacts SET content = '{\"x\": 1}' WHERE turn = 2", "content of artifact spec/1/artifact2"),
    ("DELETE FROM artifacts WHERE turn = 1", "artifact spec/1/artifact1"),
    ("UPDATE ledger SET amount_micros = amount_micros + 1", "ledger entry"),
    ("UPDATE ledger SET state = 'reserved'", "ledger entry"),
    ("DELETE FROM ledger", "ledger entry"),
    ("UPDATE events SET body = REPLACE(body, 'main', 'mane') WHERE seq = 1", "journal"),
    ("DELETE FROM events WHERE seq = 4", "journal"),
]


async def test_damage_to_any_row_is_found_and_named(world: World) -> None:
    await make_run(world)
    unnoticed: list[str] = []

    for damage, named in DAMAGES:
        async with undone(world, damage):
            found = await check_database(world.db)
        if not any(named in item.what for item in found):
            unnoticed.append(f"{damage}: {[str(item) for item in found]}")

    assert unnoticed == []
    assert await check_database(world.db) == []


@contextlib.asynccontextmanager
async def undone(world: World, damage: str) -> AsyncIterator[None]:
    """Do damage to one table, and put its rows back afterwards."""
    words = damage.split()
    table = Base.metadata.tables[words[1] if words[0] == "UPDATE" else words[2]]
    keys = [column.name for column in table.primary_key]
    async with world.db.session() as session:
        rows = [dict(row._mapping) for row in await session.execute(text(f"SELECT * FROM {table.name}"))]
    await world.sql(damage)
    yield
    for row in rows:
        marks = ", ".join(f":{name}" for name in row)
        where = " AND ".join(f"{name} = :{name}" for name in keys)
        changes = ", ".join(f"{name} = :{name}" for name in row)
        if words[0] == "UPDATE":
            await world.sql(f"UPDATE {table.name} SET {changes} WHERE {where}", **row)
        else:
            conflict = f"ON CONFLICT ({', '.join(keys)}) DO NOTHING"
            await world.sql(f"INSERT INTO {table.name} ({', '.join(row)}) VALUES ({marks}) {conflict}", **row)


async def test_an_extra_row_is_found_too(world: World) -> None:
    run_id = await make_run(world)
    await world.sql("INSERT INTO approvals (id, run_id, phase_key) VALUES ('extra', :id, 'spec')", id=run_id)
    await world.sql("INSERT INTO ledger (id, run_id, amount_micros) VALUES ('extra', :id, 5)", id=run_id)
    await world.sql("INSERT INTO artifacts (run_id, phase_key, attempt, turn) VALUES (:id, 'spec', 9, 1)", id=run_id)

    found = {item.what for item in await check_database(world.db)}

    assert found == {"approval extra", "ledger entry extra", "artifact spec/9/artifact1"}
