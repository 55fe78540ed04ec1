"""The command about money: what was spent, what may be, and more of it for a run."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.agent_command import refuse_inside_agent_command
from holdfast.cli.terminal.arguments import JSON, find_run_id, get_user
from holdfast.cli.terminal.completion import complete_runs
from holdfast.cli.terminal.output import Cell, describe_cost, paint, print_json, print_text, table
from holdfast.enums import RunStatus
from holdfast.persistence.raw_sql import (
    find_day_limit,
    find_last_payload,
    get_run,
    list_unanswered,
    read_run_costs,
    sum_costs,
    sum_day,
    sum_estimated,
    sum_unanswered,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from decimal import Decimal

_MOST_RUNS = 20


def budget(
    run_id: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="A run's id, or the beginning of it.", autocompletion=complete_runs),
    ] = None,
    add: Annotated[float | None, typer.Option("--add", metavar="USD", help="Raise the run's limit by this.")] = None,
    as_json: JSON = False,
    settle: Annotated[
        str | None,
        typer.Option("--settle", metavar="CALL=USD", help="Say what a call has cost that was perhaps paid."),
    ] = None,
) -> None:
    """Show what was spent and what may be spent, raise a run's limit, or settle a call that was perhaps paid.

    Without RUN it shows today and the newest runs.

    Example: holdfast budget 3f2a --add 2.50
    """
    if run_id is None:
        if add is not None or settle is not None:
            raise typer.BadParameter("Name the run that this is for.", param_hint="--add, --settle")
        _show_all(read_day(), is_json=as_json)
        return
    if add is not None:
        refuse_inside_agent_command("holdfast budget --add")
    if settle is not None:
        refuse_inside_agent_command("holdfast budget --settle")
    full_id = find_run_id(run_id)
    if add is not None:
        _top_up(full_id, add)
    if settle is not None:
        _settle(full_id, *_parse_settlement(settle))
    _show_run(read_run_budget(full_id), is_added=add is not None, is_json=as_json)


def read_day() -> dict[str, Any]:
    """Return what was spent today, the limits, and the newest runs with what they cost."""
    from datetime import UTC, datetime

    from holdfast.config import load_config

    config = load_config()
    today = datetime.now(UTC).date().isoformat()
    real, simulated = sum_day(today)
    rows = read_run_costs(limit=_MOST_RUNS)
    unanswered = sum_unanswered([row["run_id"] for row in rows if row["held_micros"]])
    return {
        "day": today,
        "spent_usd": _usd(real),
        "perhaps_paid_usd": _usd(sum(sum_unanswered(day=today).values())),
        "simulated_usd": _usd(simulated),
        "day_limit_usd": find_day_limit(config.day_budget_usd),
        "run_limit_usd": config.run_budget_usd,
        "runs": [
            {
                "run_id": row["run_id"],
                "state": row["state"],
                "workflow": row["workflow"],
                "spent_usd": _usd(row["spent_micros"]),
                "reserved_usd": _usd(row["held_micros"]),
                "perhaps_paid_usd": _usd(unanswered.get(row["run_id"], 0)),
                "simulated_usd": _usd(row["simulated_micros"]),
                "limit_usd": _usd(row["budget_micros"]),
            }
            for row in rows
        ],
    }


def read_run_budget(run_id: str) -> dict[str, Any]:
    """Return what a run may spend and what it spent, in all and by phase."""
    run, rows = get_run(run_id), sum_costs(run_id, "phase_key", "state", "is_simulated")
    real_rows = [row for row in rows if not row["is_simulated"]]
    simulated_rows = [row for row in rows if row["is_simulated"]]
    real, simulated = _sum(real_rows), _sum(simulated_rows)
    limit, waits_for = run["budget_micros"], run["pause_reason"]
    counted = simulated if run["is_simulated"] else real  # a rehearsal's own limit is rehearsed with play money
    return {
        "run_id": run_id,
        "state": run["state"],
        "waiting_for": waits_for,
        "limit_hit": find_exhausted(run_id).get("limit") if waits_for == "budget" else None,
        "is_simulated": bool(run["is_simulated"]),
        "spent_usd": _usd(real),
        "simulated_usd": _usd(simulated),
        "reserved_usd": _usd(_sum(row for row in real_rows if row["state"] == "reserved")),
        "perhaps_paid_usd": _usd(sum_unanswered([run_id]).get(run_id, 0)),
        "perhaps_paid": [
            {
                "call": row["id"],
                "step": row["step_key"],
                "model": row["model"],
                "since": row["created_at"],
                "usd": _usd(row["amount_micros"]),
            }
            for row in list_unanswered(run_id, limit=_MOST_RUNS)
        ],
        "estimated_usd": _usd(sum_estimated(run_id)),
        "limit_usd": _usd(limit),
        "left_usd": None if limit is None else _usd(max(limit - counted, 0)),
        "phases": [
            {
                "key": key,
                "spent_usd": _usd(_sum(row for row in real_rows if row["phase_key"] == key)),
                "simulated_usd": _usd(_sum(row for row in simulated_rows if row["phase_key"] == key)),
            }
            for key in dict.fromkeys(row["phase_key"] for row in rows)
        ],
    }


def find_exhausted(run_id: str) -> dict[str, Any]:
    """Return which limit did not allow a run's next call, the last time that happened; empty if it never did."""
    from holdfast.runtime.events import EventKind

    return find_last_payload(run_id, EventKind.BUDGET_EXHAUSTED)


def _sum(rows: "Iterable[dict[str, Any]]") -> int:
    return sum(int(row["total"] or 0) for row in rows)


def _usd(micros: Any) -> float | None:
    return None if micros is None else int(micros) / 1_000_000


def _show_all(facts: dict[str, Any], *, is_json: bool) -> None:
    if is_json:
        print_json(facts)
        return
    limit = facts["day_limit_usd"]
    print_text(f"today     ${facts['spent_usd']:.4f} of {'no limit' if limit is None else f'${limit:.2f}'}")
    if facts["perhaps_paid_usd"]:
        perhaps = f"${facts['perhaps_paid_usd']:.4f} perhaps paid: for calls that ended without an answer"
        print_text(f"          of it {perhaps}")
    if facts["simulated_usd"]:
        print_text(f"          and ${facts['simulated_usd']:.4f} simulated, in rehearsals; it counts against no limit")
    each = facts["run_limit_usd"]
    print_text(f"each run  {'no limit' if each is None else f'${each:.2f}'} unless it was started with --budget")
    rows: list[list[str | Cell]] = [
        [run["run_id"][:8], run["workflow"], Cell(run["state"], run["state"]), _describe_spent(run)]
        for run in facts["runs"]
    ]
    if rows:
        print_text("\n" + table(rows, headings=["RUN", "WORKFLOW", "STATE", "SPENT"]))


def _show_run(facts: dict[str, Any], *, is_added: bool, is_json: bool) -> None:
    if is_json:
        print_json(facts)
        return
    print_text(f"run {facts['run_id'][:8]}: {paint(_describe_spent(facts), 'bold')}")
    print_text(
        table([[f"  {phase['key']}", _describe_spent(phase).removeprefix("rehearsal, ")] for phase in facts["phases"]])
    )
    if facts["reserved_usd"]:
        under_way = facts["reserved_usd"] - facts["perhaps_paid_usd"]
        if under_way > 0:
            print_text(f"  of it ${under_way:.4f} reserved for calls that have not answered yet")
    if facts["perhaps_paid_usd"]:
        print_text(f"  of it ${facts['perhaps_paid_usd']:.4f} perhaps paid: for calls that ended without an answer")
        rows = [[f"    {one['call'][:8]}", one["step"], f"${one['usd']:.4f}"] for one in facts["perhaps_paid"]]
        print_text(table(rows))
        if not is_added:
            first = facts["perhaps_paid"][0]["call"][:8] if rows else "CALL"
            print_text(f"  If you know what one has cost: holdfast budget {facts['run_id'][:8]} --settle {first}=USD")
    if facts["estimated_usd"]:
        print_text(f"  of it ${facts['estimated_usd']:.4f} estimated, from the tokens that a coding agent reported")
    if is_added and facts["limit_hit"] == "day":
        from holdfast.runtime.run_fold.payload_text import advise_on_budget

        print_text(f"It waits for the day's limit. {advise_on_budget(facts['run_id'], {'limit': 'day'})}")
    elif is_added and facts["state"] == RunStatus.PAUSED:
        print_text(f"Go on: holdfast resume {facts['run_id'][:8]}")


def _describe_spent(facts: dict[str, Any]) -> str:
    limit = facts.get("limit_usd")
    apart = (facts.get("reserved_usd", 0.0), facts.get("perhaps_paid_usd", 0.0))
    cost = describe_cost(facts["spent_usd"], facts["simulated_usd"], *apart)
    return cost + (f" of ${limit:.2f}" if limit is not None else "")


def _parse_settlement(text: str) -> "tuple[str, Decimal]":
    from decimal import Decimal, InvalidOperation

    call, _, amount = text.rpartition("=")
    try:
        cost = Decimal(amount)
    except InvalidOperation:
        cost = Decimal("NaN")
    if not call or not cost.is_finite() or cost < 0:
        raise typer.BadParameter("It should be CALL=USD, such as 1a2b3c4d=0.02.", param_hint="--settle")
    return call, cost


def _settle(run_id: str, call: str, cost: "Decimal") -> None:
    import asyncio

    from holdfast.cli.terminal.engine import open_engine
    from holdfast.engine.settlement import settle_by_person

    async def settle() -> None:
        async with open_engine() as (_engine, db, _config):
            await settle_by_person(db, run_id, call, cost, by=get_user())

    asyncio.run(settle())


def _top_up(run_id: str, amount: float) -> None:
    import asyncio

    from holdfast.cli.terminal.engine import open_engine

    async def top_up() -> None:
        async with open_engine() as (engine, _db, _config):
            await engine.top_up(run_id, amount, by=get_user())

    asyncio.run(top_up())
