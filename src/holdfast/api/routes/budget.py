"""What is spent, against the limits, day by day and by what it was spent on; and more money for a run."""

import math
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from holdfast.api.http.auth import Approver, Operator, Viewer
from holdfast.api.http.openapi import READ, WRITE_ONE
from holdfast.api.schemas import IdempotencyKey, RunIdPath, RunRef, ShortText, TopUp
from holdfast.api.serialize import to_usd
from holdfast.api.server.run_requests import top_up
from holdfast.api.server.server import ServerDep
from holdfast.engine.run.load import get_run
from holdfast.engine.settlement import settle_by_person
from holdfast.enums import RunStatus
from holdfast.persistence.admission import read_day_limit
from holdfast.persistence.listings import read_money
from holdfast.persistence.statements import now_text
from holdfast.presentation.format import money
from holdfast.presentation.status import Note

router = APIRouter()


class Spent(BaseModel):
    name: str
    spent_usd: float
    share: float = Field(description="The part of the whole, from 0 to 1.", examples=[0.25])


class BudgetChart(BaseModel):
    """Every day of the range, also those on which nothing was spent, and a round scale to draw them by."""

    days: list[Spent]
    total_usd: float
    lines_usd: list[float] = Field(description="Where to draw lines; the last is the top.", examples=[[0, 0.5, 1]])
    has_limit: bool = Field(description="The day's limit is near enough to be drawn.")


class BudgetReport(BaseModel):
    day: str
    spent_today_usd: float = Field(description="Real money alone, as in all that follows.")
    perhaps_paid_today_usd: float = Field(description="The part of it for calls that ended without an answer.")
    simulated_today_usd: float = Field(description="What rehearsals made up today; it counts against no limit.")
    simulated_usd: float = Field(description="What they made up in all these days.")
    day_limit_usd: float | None
    run_limit_usd: float | None
    days: list[Spent]
    by_workflow: list[Spent]
    by_persona: list[Spent]
    by_model: list[Spent]
    chart: BudgetChart
    today: Note = Field(description="What today's spending means, and what counts.")


@router.get("/api/budget", tags=["catalog"], responses=READ, summary="What is spent, and the limits")
async def show_budget(
    server: ServerDep, _identity: Viewer, days: Annotated[int, Query(ge=1, le=366)] = 30
) -> BudgetReport:
    today = date.fromisoformat(now_text()[:10])
    since = today - timedelta(days=days - 1)
    spent = await read_money(server.db, since_day=since.isoformat())
    spent_today = to_usd(spent.by_day.get(today.isoformat(), 0))
    simulated_today = to_usd(spent.simulated_by_day.get(today.isoformat(), 0))
    perhaps_paid = to_usd(spent.unanswered_by_day.get(today.isoformat(), 0))
    limit, is_for_all = await read_day_limit(server.db, server.config.day_budget_usd)
    note = _describe_today(spent_today, simulated_today, perhaps_paid, limit, each=server.config.run_budget_usd)
    if is_for_all:
        note = replace(note, text=f"{note.text} The day's limit was set for all processes (holdfast limits).")
    return BudgetReport(
        day=today.isoformat(),
        spent_today_usd=spent_today,
        perhaps_paid_today_usd=perhaps_paid,
        simulated_today_usd=simulated_today,
        simulated_usd=to_usd(sum(spent.simulated_by_day.values())),
        day_limit_usd=limit,
        run_limit_usd=server.config.run_budget_usd,
        days=_to_spent(spent.by_day),
        by_workflow=_dearest_first(spent.by_workflow),
        by_persona=_dearest_first(spent.by_persona),
        by_model=_dearest_first(spent.by_model),
        chart=_to_chart(spent.by_day, since, days, limit),
        today=note,
    )


class SettleCall(BaseModel):
    """What a call has cost whose answer was lost."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"call": "1a2b3c4d", "cost_usd": 0.02}]})
    call: ShortText = Field(
        min_length=1, description="The entry of its `budget.reserved`, the beginning of it, or its step."
    )
    cost_usd: float = Field(ge=0, allow_inf_nan=False)


@router.post(
    "/api/runs/{run_id}/budget/settlement",
    tags=["runs"],
    responses=WRITE_ONE,
    summary="Settle a call that was perhaps paid",
)
async def settle(run_id: RunIdPath, body: SettleCall, server: ServerDep, identity: Approver) -> RunRef:
    """Count what a person knows that a call has cost, in the place of what was reserved for it."""
    stored = await get_run(server.db, run_id)
    cost = Decimal(str(body.cost_usd))
    await server.tasks.run_shielded(settle_by_person(server.db, stored.run.id, body.call, cost, by=identity.name))
    return RunRef(run_id=stored.run.id, state=RunStatus(stored.run.state))


@router.post(
    "/api/runs/{run_id}/budget", tags=["runs"], status_code=202, responses=WRITE_ONE, summary="Give a run more money"
)
async def give_more(
    run_id: RunIdPath, body: TopUp, server: ServerDep, identity: Operator, idempotency_key: IdempotencyKey = None
) -> RunRef:
    """Raise the run's limit; a run that waits for it goes on. The same `Idempotency-Key` again adds nothing."""
    stored = await top_up(server, run_id, body, by=identity.name, key=idempotency_key)
    return RunRef(run_id=stored.run.id, state=RunStatus(stored.run.state))


def _to_spent(micros: dict[str, int]) -> list[Spent]:
    whole = sum(micros.values()) or 1
    return [Spent(name=name, spent_usd=to_usd(amount), share=amount / whole) for name, amount in micros.items()]


def _dearest_first(micros: dict[str, int]) -> list[Spent]:
    return sorted(_to_spent(micros), key=lambda each: (-each.spent_usd, each.name))


def _to_chart(by_day: dict[str, int], since: date, count: int, limit: float | None) -> BudgetChart:
    days = to_days(by_day, since, count)
    largest = max(days.values(), default=0) / 1_000_000
    has_limit = limit is not None and limit <= largest * 2.5
    return BudgetChart(
        days=_to_spent(days),
        total_usd=to_usd(sum(days.values())),
        lines_usd=to_scale(max(largest, limit or 0.0) if has_limit else largest),
        has_limit=has_limit,
    )


def to_days(by_day: dict[str, int], since: date, count: int) -> dict[str, int]:
    """List so many days from the first on, also those on which nothing was spent."""
    days = [(since + timedelta(days=n)).isoformat() for n in range(count)]
    return {day: by_day.get(day, 0) for day in days}


def to_scale(largest: float) -> list[float]:
    """List round amounts from nothing to the first at or above the largest, in at most five steps."""
    if largest <= 0:
        return [0.0, 0.5, 1.0]
    power = 10 ** math.floor(math.log10(largest))
    step = next((each * power for each in (0.2, 0.5, 1, 2) if largest / (each * power) <= 4), 5 * power)
    return [float(f"{n * step:.6g}") for n in range(math.ceil(largest / step - 1e-9) + 1)]


def _describe_today(
    spent: float, simulated: float, perhaps_paid: float, limit: float | None, *, each: float | None
) -> Note:
    share = spent / limit if limit else 0.0
    if share >= 1:
        of_day = "The day's limit is used up: runs wait until tomorrow (UTC), or until it is raised."
    elif limit is None:
        of_day = "There is no limit per day; set day_budget_usd to have one."
    else:
        of_day = f"{money(limit - spent)} is left until midnight UTC."
    of_run = "A run has no limit unless it is started with one."
    if each is not None:
        of_run = f"A run may spend {money(each)} unless it is started with another limit."
    counts = "Rehearsals count against no limit."
    if simulated:
        counts = f"Rehearsals, {money(simulated)} simulated today, count against no limit."
    if perhaps_paid:
        counts = f"{money(perhaps_paid)} of it is perhaps paid, for calls that ended without an answer. {counts}"
    return Note("bad" if share >= 1 else "waiting" if share >= 0.8 else "good", f"{of_day} {of_run} {counts}")
