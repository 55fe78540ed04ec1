"""A command-line coding agent costs what it says, or what the persona says, and the budget bounds it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.engine_world import World, artifact, phase, template
from tests.support.progress_limit import until

import holdfast.engine
from holdfast.agents.build import build_agent
from holdfast.catalog.model_table import load_model_table
from holdfast.engine import RunResult, WorkflowEngine
from holdfast.enums import Backend, RunStatus
from holdfast.persistence.raw_sql import sum_estimated
from holdfast.persona import AgentPersona

CONTENT = json.dumps(artifact("00000000-0000-0000-0000-000000000000", "spec"))
HAND_IN = f"mkdir -p out; echo '{CONTENT}' > out/spec.json"
TELL = """echo '{"cost_usd": 0.25, "input_tokens": 4000, "output_tokens": 300}' > "$HOLDFAST_USAGE_FILE";"""


def engine_with(world: World, body: str, **fields: Any) -> WorkflowEngine:
    definition = {"name": "tool", "version": 1, "backend": "command", "capabilities": ["spec_write"], **fields}
    who = AgentPersona.model_validate({**definition, "argv": ["sh", "-c", body]})
    engine = world.engine(pool=(who,), backends=frozenset({Backend.COMMAND}))
    holdfast.engine.build_agent = build_agent
    return engine


async def run(world: World, body: str, *, budget_usd: float | None = None, **fields: Any) -> RunResult:
    engine = engine_with(world, body, **fields)
    return await engine.run(template(phase("spec")), repo_path=world.repo, budget_usd=budget_usd)


async def test_what_it_reports_is_counted(world: World) -> None:
    result = await run(world, TELL + HAND_IN, cost_per_run_usd=1.0)

    assert (result.state, result.cost_micros) == (RunStatus.COMPLETED, 250_000)
    [row] = await world.ledger(result.run_id)
    assert (row.state, row.reserved_micros, row.input_tokens, row.output_tokens) == ("settled", 1_000_000, 4000, 300)
    assert (row.model, row.persona) == ("tool", "tool")


async def test_it_may_report_in_its_last_words(world: World) -> None:
    said = """; echo '{"total_cost_usd": 0.07, "usage": {"input_tokens": 9, "output_tokens": 1}}'"""
    result = await run(world, HAND_IN + said, cost_from="output")

    assert result.cost_micros == 70_000


async def test_what_reports_nothing_costs_what_the_persona_says(world: World) -> None:
    result = await run(world, HAND_IN, cost_per_run_usd=0.4)

    assert result.cost_micros == 400_000


@pytest.mark.parametrize("rubbish", ["[]", "nonsense", '{"cost_usd": -3}', '{"cost_usd": 1e30}', '{"cost_usd": true}'])
async def test_rubbish_in_the_report_counts_as_none(world: World, rubbish: str) -> None:
    result = await run(world, f"echo '{rubbish}' > \"$HOLDFAST_USAGE_FILE\"; {HAND_IN}", cost_per_run_usd=0.4)

    assert (result.state, result.cost_micros) == (RunStatus.COMPLETED, 400_000)


async def test_a_command_that_fails_has_cost_something_all_the_same(world: World) -> None:
    result = await run(world, TELL + "exit 3")

    assert (result.state, result.cost_micros) == (RunStatus.FAILED, 250_000)


async def test_one_that_may_cost_too_much_waits_for_money_before_it_runs(world: World) -> None:
    body = f"touch begun; {HAND_IN}"
    paused = await run(world, body, budget_usd=0.3, cost_per_run_usd=0.4)

    assert (paused.state, paused.waiting_for) == (RunStatus.PAUSED, "budget")
    assert not list((world.data_dir / "worktrees").rglob("begun"))

    engine = engine_with(world, body, cost_per_run_usd=0.4)
    await engine.top_up(paused.run_id, 1.0)
    assert (await engine.resume(paused.run_id)).state is RunStatus.COMPLETED


async def test_a_command_found_again_after_a_crash_is_paid_for_once(world: World) -> None:
    body = f"touch begun; while [ ! -e gate ]; do sleep 0.05; done; {TELL}{HAND_IN}"
    engine = engine_with(world, body, cost_per_run_usd=1.0)
    run_id = await engine.create(template(phase("spec")), repo_path=world.repo)
    task = asyncio.create_task(engine.resume(run_id))
    begun = await _until_there(world.data_dir / "worktrees", "begun")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    begun.with_name("gate").touch()

    result = await engine_with(world, body, cost_per_run_usd=1.0).resume(run_id)

    assert (result.state, result.cost_micros) == (RunStatus.COMPLETED, 250_000)
    assert [row.state for row in await world.ledger(run_id)] == ["settled"]


CODEX = [
    {"type": "thread.started", "thread_id": "0199a213-81c0-7800-8aa1-bbab2a035a53"},
    {"type": "item.completed", "item": {"type": "agent_message", "text": "Done."}},
    {
        "type": "turn.completed",
        "usage": {"input_tokens": 300_000, "cached_input_tokens": 100_000, "output_tokens": 1_000},
    },
]
GEMINI = [
    {"type": "init", "session_id": "0199a213-81c0-7800-8aa1-bbab2a035a53", "model": "gpt-6.1-sol"},
    {"type": "message", "role": "assistant", "content": "Done."},
    {"type": "result", "stats": {"input_tokens": 300_000, "cached": 100_000, "output_tokens": 1_000}},
]


@pytest.mark.parametrize(
    ("adapter", "lines", "model", "is_priced"),
    [
        ("codex", CODEX, "gpt-6.1-sol", True),
        ("codex", CODEX, "some-other-model", False),
        ("gemini", GEMINI, "", True),
    ],
    ids=["by-the-persona", "unknown", "by-its-output"],
)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_tokens_of_a_known_agent_are_priced_by_the_table_and_called_an_estimate(
    world: World,
    adapter: str,
    lines: list[dict[str, Any]],
    model: str,
    is_priced: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOLDFAST_DATA_DIR", str(world.data_dir))
    program = world.folder / adapter
    printed = "\n".join(map(json.dumps, lines))
    program.write_text(f"#!/bin/sh\n{HAND_IN}\ncat <<'END'\n{printed}\nEND\n")
    program.chmod(0o755)
    fields = {"adapter": adapter, "model": model, "argv": [str(program)]}
    definition = {"name": "tool", "version": 1, "backend": "command", "capabilities": ["spec_write"], **fields}
    engine = world.engine(pool=(AgentPersona.model_validate(definition),), backends=frozenset({Backend.COMMAND}))
    holdfast.engine.build_agent = build_agent

    result = await engine.run(template(phase("spec")), repo_path=world.repo)

    card = load_model_table().find_named("gpt-6.1-sol")
    assert card is not None
    cached = card.prices.cached_input or card.prices.input
    expected = (200_000 * card.prices.input + 100_000 * cached + 1_000 * card.prices.output) / 1e6
    assert result.state is RunStatus.COMPLETED
    assert result.cost_micros == pytest.approx(expected if is_priced else 0, abs=1)
    [settled] = world.events(result.run_id, "budget.settled")
    assert settled.payload.get("estimated", False) is is_priced
    assert sum_estimated(str(result.run_id)) == result.cost_micros


async def _until_there(folder: Path, name: str) -> Path:
    await until(lambda: [*folder.rglob(name)], f"there is a file {name}")
    return next(folder.rglob(name))
