"""The command about money: what was spent, what may be, and more of it for a run."""

from typing import Annotated, Any

import typer

from holdfast.cli.options import JSON, get_user
from holdfast.cli.output import Cell, paint, print_json, print_text, table
from holdfast.cli.reading import find_run_id
from holdfast.persistence.plain import query

_OF_DELETED_RUNS = "SELECT SUM(amount_micros) AS total FROM past_spending WHERE day = :day"


def budget(
    run_id: Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run's id, or the beginning of it.")] = None,
    add: Annotated[float | None, typer.Option("--add", metavar="USD", help="Let the run spend so much more.")] = None,
    as_json: JSON = False,
) -> None:
    """What was spent, what may be; give a run more.

    Without RUN it tells of today and of the runs that spent most.

    Example: holdfast budget 3f2a --add 2.50
    """
    if run_id is None:
        if add is not None:
            raise typer.BadParameter("Name the run that may spend more.", param_hint="--add")
        _show_all(read_day(), is_json=as_json)
        return
    full_id = find_run_id(run_id)
    if add is not None:
        _top_up(full_id, add)
    _show_run(read_run_budget(full_id), is_added=add is not None, is_json=as_json)


def read_day() -> dict[str, Any]:
    """Today's money, and the runs of the last time by what they cost."""
    from datetime import UTC, datetime

    from holdfast.config import load_config

    config = load_config()
    today = datetime.now(UTC).date().isoformat()
    (spent,) = query("SELECT SUM(amount_micros) AS total FROM ledger WHERE day = :day", {"day": today}) or [{}]
    (of_deleted,) = query(_OF_DELETED_RUNS, {"day": today}) or [{}]
    runs = query(
        "SELECT r.id AS run_id, r.state, r.workflow, r.budget_micros, SUM(l.amount_micros) AS spent_micros "
        "FROM ledger l JOIN runs r ON r.id = l.run_id "
        "GROUP BY r.id, r.state, r.workflow, r.budget_micros, r.created_at ORDER BY r.created_at DESC LIMIT 20"
    )
    return {
        "day": today,
        "spent_usd": (_usd(spent.get("total")) or 0.0) + (_usd(of_deleted.get("total")) or 0.0),
        "day_limit_usd": config.day_budget_usd,
        "run_limit_usd": config.run_budget_usd,
        "runs": [
            {
                "run_id": row["run_id"],
                "state": row["state"],
                "workflow": row["workflow"],
                "spent_usd": _usd(row["spent_micros"]),
                "limit_usd": _usd(row["budget_micros"]),
            }
            for row in runs
        ],
    }


def read_run_budget(run_id: str) -> dict[str, Any]:
    (run,) = query("SELECT state, budget_micros, pause_reason FROM runs WHERE id = :id", {"id": run_id})
    rows = query(
        "SELECT phase_key, state, SUM(amount_micros) AS total, COUNT(*) AS calls FROM ledger WHERE run_id = :id "
        "GROUP BY phase_key, state ORDER BY phase_key",
        {"id": run_id},
    )
    total = sum(int(row["total"] or 0) for row in rows)
    limit = run["budget_micros"]
    phases: dict[str, int] = {}
    for row in rows:
        phases[row["phase_key"]] = phases.get(row["phase_key"], 0) + int(row["total"] or 0)
    return {
        "run_id": run_id,
        "state": run["state"],
        "waiting_for": run["pause_reason"],
        "spent_usd": _usd(total),
        "reserved_usd": _usd(sum(int(row["total"] or 0) for row in rows if row["state"] == "reserved")),
        "limit_usd": _usd(limit),
        "left_usd": None if limit is None else _usd(max(limit - total, 0)),
        "phases": [{"key": key, "spent_usd": _usd(spent)} for key, spent in phases.items()],
    }


def _usd(micros: Any) -> float | None:
    return None if micros is None else int(micros) / 1_000_000


def _show_all(facts: dict[str, Any], *, is_json: bool) -> None:
    if is_json:
        print_json(facts)
        return
    limit = facts["day_limit_usd"]
    print_text(f"today     ${facts['spent_usd']:.4f} of {'no limit' if limit is None else f'${limit:.2f}'}")
    each = facts["run_limit_usd"]
    print_text(f"each run  {'no limit' if each is None else f'${each:.2f}'} unless it was started with --budget")
    rows: list[list[str | Cell]] = [
        [run["run_id"][:8], run["workflow"], Cell(run["state"], run["state"]), _of(run["spent_usd"], run["limit_usd"])]
        for run in facts["runs"]
    ]
    if rows:
        print_text("\n" + table(rows, headings=["RUN", "WORKFLOW", "STATE", "SPENT"]))


def _show_run(facts: dict[str, Any], *, is_added: bool, is_json: bool) -> None:
    if is_json:
        print_json(facts)
        return
    print_text(f"run {facts['run_id'][:8]}: {paint(_of(facts['spent_usd'], facts['limit_usd']), 'bold')}")
    print_text(table([[f"  {phase['key']}", f"${phase['spent_usd']:.4f}"] for phase in facts["phases"]]))
    if facts["reserved_usd"]:
        print_text(f"  of it ${facts['reserved_usd']:.4f} reserved for calls that have not answered")
    if is_added and facts["state"] == "paused":
        print_text(f"Go on: holdfast resume {facts['run_id'][:8]}")


def _of(spent: float, limit: float | None) -> str:
    return f"${spent:.4f}" + (f" of ${limit:.2f}" if limit is not None else "")


def _top_up(run_id: str, amount: float) -> None:
    import asyncio

    from holdfast.cli.opening import open_engine

    async def top_up() -> None:
        async with open_engine() as (engine, _db, _config):
            await engine.top_up(run_id, amount, by=get_user())

    asyncio.run(top_up())
