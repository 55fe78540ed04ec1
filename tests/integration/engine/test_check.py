"""`db check` finds every row that disagrees with the journal."""

from typing import Any

import pytest
from tests.engine_world import Turn, World, phase

from holdfast.engine.check import check_database
from holdfast.enums import Backend


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


@pytest.mark.parametrize(
    ("damage", "named"),
    [
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
    ],
    ids=lambda value: value if " SET " in value or value.startswith("DELETE") else "",
)
async def test_damage_to_a_row_is_found_and_named(damaged_world: World, damage: str, named: str) -> None:
    world = damaged_world
    await world.sql(damage)

    found = await check_database(world.db)

    assert found
    assert any(named in item.what for item in found), [str(item) for item in found]


@pytest.fixture
async def damaged_world(world: World) -> Any:
    await make_run(world)
    return world


async def test_an_extra_row_is_found_too(world: World) -> None:
    run_id = await make_run(world)
    await world.sql("INSERT INTO approvals (id, run_id, phase_key) VALUES ('extra', :id, 'spec')", id=run_id)
    await world.sql("INSERT INTO ledger (id, run_id, amount_micros) VALUES ('extra', :id, 5)", id=run_id)
    await world.sql("INSERT INTO artifacts (run_id, phase_key, attempt, turn) VALUES (:id, 'spec', 9, 1)", id=run_id)

    found = {item.what for item in await check_database(world.db)}

    assert found == {"approval extra", "ledger entry extra", "artifact spec/9/artifact1"}
