"""Money: reserved before a call, settled after it, never more than was agreed to."""

import asyncio
import uuid
from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.engine_processes import Zygote
from tests.support.engine_world import Turn, World, phase, template

from holdfast.catalog import load_model_table
from holdfast.enums import Backend, RunStatus
from holdfast.errors import HoldfastError
from holdfast.persistence.admission import put_limit
from holdfast.persistence.listings import RunFilter, list_page, read_money, read_total_micros
from holdfast.persistence.runs import Spending, read_spent, read_spent_in_scopes
from holdfast.persistence.statements import now_text
from holdfast.runtime.clock import set_right
from holdfast.runtime.run_fold.payload_text import advise_on_budget

SIMULATED: dict[str, Any] = {"backends": frozenset({Backend.SIMULATED})}
# rehearsal-1 costs $1 for a million tokens in and $5 for a million out; up to 1000 tokens may come out.
WORST = 5_000
"""Micro-dollars for the output alone; what a request says costs a little more."""


REAL: dict[str, Any] = {"backends": frozenset({Backend.OPENROUTER})}
REAL_MODEL = "deepseek-v4-pro"


def calls(count: int, model: str = "rehearsal-1") -> Any:
    async def script(turn: Turn) -> None:
        for number in range(count):
            await turn.use_model(f"call {number}", tokens=(100, 10), model=model)
        turn.hand_in()

    return script


async def test_a_call_is_reserved_with_its_request_and_settled_with_its_response(world: World) -> None:
    result = await world.run(calls(2), engine=SIMULATED, budget_usd=1)

    rows = await world.ledger(result.run_id)
    kinds = [kind for kind in await world.kinds(result.run_id) if kind.startswith(("model.", "budget."))]
    assert [(row.state, row.amount_micros, row.input_tokens, row.output_tokens) for row in rows] == [
        ("settled", 150, 100, 10)
    ] * 2
    assert all(WORST < row.reserved_micros < 2 * WORST for row in rows)
    assert kinds == ["model.request", "budget.reserved", "model.response", "budget.settled"] * 2
    assert (result.cost_micros, result.simulated_micros) == (0, 300)  # play money costs nothing


@pytest.mark.parametrize(("limit", "kind"), [("run", "play"), ("phase", "play"), ("run", "real"), ("day", "real")])
async def test_a_limit_pauses_the_run_before_the_call_and_it_goes_on_after_a_top_up(
    world: World, limit: str, kind: str
) -> None:
    card = load_model_table().models[REAL_MODEL]
    worst = card.cost_micros(input_tokens=0, output_tokens=1000) if kind == "real" else WORST
    enough_for_one = (worst + 1_000) / 1_000_000
    options: dict[str, Any] = {"budget_usd": enough_for_one} if limit == "run" else {}
    spec = phase("spec", budget_usd=enough_for_one) if limit == "phase" else phase("spec")
    engine = {
        **(REAL if kind == "real" else SIMULATED),
        **({"day_budget_usd": enough_for_one} if limit == "day" else {}),
    }
    many = calls(20, REAL_MODEL if kind == "real" else "rehearsal-1")

    paused = await world.run(many, spec, engine=engine, **options)

    row = await world.run_row(paused.run_id)
    assert paused.state is RunStatus.PAUSED
    assert (row.pause_reason, paused.waiting_for) == ("budget", "budget")
    [exhausted] = world.events(paused.run_id, "budget.exhausted")
    assert exhausted.payload["limit"] == limit
    made = len(world.events(paused.run_id, "model.response"))
    assert 1 <= made < 20
    assert sum(item.amount_micros for item in await world.ledger(paused.run_id)) <= enough_for_one * 1_000_000

    if limit == "day":
        engine["day_budget_usd"] = 1
    else:
        await world.engine().top_up(paused.run_id, 1, by="ann")
    assert advise_on_budget(str(paused.run_id), exhausted.payload) in exhausted.payload["message"]
    result = await world.engine(many, **engine).resume(paused.run_id)

    assert result.state is RunStatus.COMPLETED
    assert result.phases[0].attempts == 1
    assert len(world.events(paused.run_id, "model.response")) == 20
    assert len(await world.ledger(paused.run_id)) == 20


async def test_the_days_limit_for_all_counts_and_is_what_the_pause_says(world: World) -> None:
    set_right(259_200.0)  # this machine's clock is three days ahead; on a server the store sees that it is not
    card = load_model_table().models[REAL_MODEL]
    limit = card.cost_micros(input_tokens=0, output_tokens=1000) + 1_000
    await put_limit(world.db, "day", "", limit, by="ann")

    paused = await world.run(calls(20, REAL_MODEL), engine={**REAL, "day_budget_usd": 100.0})

    [exhausted] = world.events(paused.run_id, "budget.exhausted")
    facts = {name: exhausted.payload.get(name) for name in ("limit", "limit_micros", "for_all")}
    assert facts == {"limit": "day", "limit_micros": limit, "for_all": True}
    assert f"of the day's ${limit / 1e6:.4f}" in exhausted.payload["message"]
    assert exhausted.payload["message"].endswith(advise_on_budget(str(paused.run_id), exhausted.payload))
    row = await world.run_row(paused.run_id)
    assert row.due_at == f"{date.fromisoformat(row.updated_at[:10]) + timedelta(days=1)}T00:00:00.000Z"


async def test_a_rehearsal_touches_no_limit_of_real_money(world: World) -> None:
    tight = {"day_budget_usd": 0.000001, "run_budget_usd": 0.000001}

    played = await world.run(calls(3), engine={**SIMULATED, **tight})

    assert (played.state, played.cost_micros, played.simulated_micros) == (RunStatus.COMPLETED, 0, 450)
    assert [row.is_simulated for row in await world.ledger(played.run_id)] == [1, 1, 1]
    assert (await read_spent_in_scopes(world.db, str(played.run_id), "spec", now_text()[:10], is_simulated=False)) == {
        "run": 0,
        "phase": 0,
        "day": 0,
    }


async def test_real_money_is_not_less_for_a_rehearsal_before_it(world: World) -> None:
    card = load_model_table().models[REAL_MODEL]
    enough_for_one = (card.cost_micros(input_tokens=0, output_tokens=1000) + 1_000) / 1_000_000
    await world.run(calls(40), engine=SIMULATED)

    real = await world.run(calls(1, REAL_MODEL), engine={**REAL, "day_budget_usd": enough_for_one})

    assert (real.state, real.simulated_micros) == (RunStatus.COMPLETED, 0)
    assert [row.is_simulated for row in await world.ledger(real.run_id)] == [0]
    money = await read_money(world.db, since_day="")
    assert (sum(money.by_day.values()), sum(money.simulated_by_day.values())) == (real.cost_micros, 40 * 150)
    assert await read_total_micros(world.db) == (real.cost_micros, 40 * 150)


@pytest.mark.parametrize(
    ("exhausted", "advice"),
    [
        (
            {"limit": "run", "spent_micros": 990_000, "needed_micros": 40_000, "limit_micros": 1_000_000},
            "Give the run more: holdfast budget 3f2a1b2c --add 0.03, then holdfast resume 3f2a1b2c",
        ),
        (
            {"limit": "phase", "spent_micros": 0, "needed_micros": 1, "limit_micros": 0},
            "Give the phase more: holdfast budget 3f2a1b2c --add 0.01, then holdfast resume 3f2a1b2c",
        ),
        (
            {"limit": "day", "spent_micros": 1, "needed_micros": 1, "limit_micros": 1},
            "Tomorrow (UTC): holdfast resume 3f2a1b2c. Sooner: raise day_budget_usd in the settings "
            "(or HOLDFAST_DAY_BUDGET_USD) and holdfast resume 3f2a1b2c",
        ),
        (
            {"limit": "day", "spent_micros": 1, "needed_micros": 1, "limit_micros": 1, "for_all": True},
            "Tomorrow (UTC): holdfast resume 3f2a1b2c. Sooner: holdfast limits set day USD and holdfast resume "
            "3f2a1b2c",
        ),
        ({}, "Give the run more: holdfast budget 3f2a1b2c --add 0.01, then holdfast resume 3f2a1b2c"),
    ],
)
def test_the_advice_fits_the_limit_that_was_hit(exhausted: dict[str, Any], advice: str) -> None:
    assert advise_on_budget("3f2a1b2c-0000", exhausted) == advice


async def test_a_run_without_enough_money_pauses_again(world: World) -> None:
    paused = await world.run(calls(1), engine=SIMULATED, budget_usd=0.001)
    await world.engine().top_up(paused.run_id, 0.001)

    again = await world.engine(calls(1), **SIMULATED).resume(paused.run_id)

    assert (paused.state, again.state) == (RunStatus.PAUSED, RunStatus.PAUSED)
    assert await world.ledger(paused.run_id) == []


async def test_a_top_up_is_more_than_nothing_and_for_a_run_that_is_not_over(world: World) -> None:
    completed = await world.run(calls(0), engine=SIMULATED)
    for run_id, amount, code in (
        (completed.run_id, 1, "run_already_terminal"),
        (uuid.uuid4(), 1, "run_not_found"),
        ((await world.run(calls(1), engine=SIMULATED, budget_usd=0.001)).run_id, 0, "config_invalid"),
    ):
        with pytest.raises(HoldfastError) as error:
            await world.engine().top_up(run_id, amount)
        assert error.value.code == code


async def test_calls_side_by_side_do_not_pass_the_limit_together(world: World) -> None:
    async def script(turn: Turn) -> None:
        await turn.use_model(f"of {turn.phase_key}")
        turn.hand_in()

    readers = [phase(key, needs=[], read_only=True) for key in ("style", "tests", "security")]
    limit = 2 * (WORST + 500)
    together = asyncio.Barrier(3)

    async def all_at_once(turn: Turn) -> None:
        await together.wait()
        await script(turn)

    paused = await world.run(all_at_once, *readers, engine=SIMULATED, budget_usd=limit / 1_000_000)

    assert paused.state is RunStatus.PAUSED
    assert sum(row.reserved_micros for row in await world.ledger(paused.run_id)) <= limit
    await world.engine().top_up(paused.run_id, 1)
    assert (await world.engine(script, **SIMULATED).resume(paused.run_id)).state is RunStatus.COMPLETED
    assert len(await world.ledger(paused.run_id)) == 3


async def test_a_reservation_whose_call_was_killed_stays_counted(world: World, zygote: Zygote) -> None:
    run_id = str(uuid.uuid4())
    owner = zygote.start(world, "run_and_hang", run_id, "model_in_flight")
    owner.wait_for(world.folder / "is-hanging")
    owner.kill()

    async def script(turn: Turn) -> None:
        await turn.use_model("first")
        await turn.use_model("second")
        turn.hand_in()

    world.know(template("spec"))
    result = await world.engine(script).resume(run_id)

    rows = await world.ledger(run_id)
    assert result.state is RunStatus.COMPLETED
    assert sorted(row.state for row in rows) == ["reserved", "settled", "settled"]
    assert result.cost_micros + result.simulated_micros == sum(row.amount_micros for row in rows)


async def test_a_failed_call_stays_counted(world: World) -> None:
    async def script(turn: Turn) -> None:
        with pytest.raises(RuntimeError):
            await turn.use_model("hello", error=RuntimeError("refused"))
        turn.hand_in()

    result = await world.run(script, engine=SIMULATED)

    [row] = await world.ledger(result.run_id)
    assert result.state is RunStatus.COMPLETED
    assert row.state == "reserved"


async def test_what_a_call_without_an_answer_may_have_cost_is_counted_apart(world: World) -> None:
    """Perhaps paid: a call that a stop cut off, and one that failed before its next attempt; not one under way."""
    seen: list[Spending] = []

    async def script(turn: Turn) -> None:
        with pytest.raises(RuntimeError):
            await turn.use_model("lost", error=RuntimeError("nobody knows"), model=REAL_MODEL)
        seen.append(await read_spent(world.db, turn.run_id))
        turn.hand_in()

    stopped = await world.run_and_stop(script, engine=REAL)
    await world.engine().pause(stopped)
    paused = await read_spent(world.db, stopped)
    [listed] = await list_page(world.db, RunFilter(), limit=1)

    assert seen[0].reserved_micros > 0
    assert seen[0].unanswered_micros == 0  # while the run works, its last attempt counts as under way
    assert paused.unanswered_micros == paused.reserved_micros == seen[0].reserved_micros
    assert listed.spent == paused


@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    tokens=st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 1_000)), min_size=1, max_size=6),
    budget=st.integers(1_000, 40_000),
    stops=st.lists(st.integers(0, 5), max_size=2),
)
async def test_the_ledger_is_the_journals_sum_and_never_above_the_limit(
    world: World, tokens: list[tuple[int, int]], budget: int, stops: list[int]
) -> None:
    """After any sequence of calls, interruptions and resumes."""

    def script(stop_after: int | None) -> Any:
        async def follow(turn: Turn) -> None:
            for number, used in enumerate(tokens):
                if number == stop_after:
                    raise KeyboardInterrupted
                await turn.use_model(f"call {number}", tokens=used)
            turn.hand_in()

        return follow

    run_id = str(uuid.uuid4())
    world.know(template("spec"))
    for attempt, stop in enumerate([*stops, None]):
        engine = world.engine(script(stop), **SIMULATED)
        try:
            if attempt == 0:
                result = await engine.run(
                    template("spec"), repo_path=world.repo, pre_allocated_run_id=run_id, budget_usd=budget / 1_000_000
                )
            else:
                result = await engine.resume(run_id)
        except KeyboardInterrupted:
            continue
        if result.state is RunStatus.COMPLETED:
            break

    rows = await world.ledger(run_id)
    amounts: dict[str, int] = {}
    for event in world.events(run_id):
        if event.kind in ("budget.reserved", "budget.settled"):
            amounts[event.payload["entry"]] = event.payload["amount_micros"]
    assert {row.id: row.amount_micros for row in rows} == amounts
    in_flight = sum(row.reserved_micros for row in rows[-1:])
    assert sum(row.amount_micros for row in rows) <= budget + in_flight


class KeyboardInterrupted(BaseException):
    """An interruption that no agent catches."""
