"""Where the money of one run went."""

from collections.abc import Mapping

from fastapi import APIRouter
from pydantic import BaseModel, Field

from holdfast.api.http.auth import Viewer
from holdfast.api.http.openapi import READ_ONE
from holdfast.api.schemas import RunIdPath
from holdfast.api.serialize import find_template, to_usd
from holdfast.api.server.server import ServerDep
from holdfast.engine.run.load import get_run
from holdfast.persistence.models import LedgerRow
from holdfast.persistence.runs import StoredRun, list_unanswered, read_spent
from holdfast.presentation.format import cost
from holdfast.presentation.trace import RunTrace
from holdfast.runtime.run_fold.money import UsageTotal
from holdfast.workflow import WorkflowTemplate

router = APIRouter(prefix="/api/runs", tags=["runs"])
_MOST_CALLS = 100


class CostRow(BaseModel):
    name: str
    spent_usd: float
    share: float = Field(description="The part of the whole, from 0 to 1.")
    limit_usd: float | None = None
    calls: int
    input_tokens: int
    output_tokens: int


class CostTable(BaseModel):
    by: str = Field(examples=["Phase"])
    has_limits: bool
    rows: list[CostRow] = Field(description="The dearest first.")


class OpenCall(BaseModel):
    call: str = Field(description="Its name in `POST /api/runs/{run_id}/budget/settlement`.", examples=["1a2b3c4d"])
    step: str = Field(examples=["plan/1/turn1/m3"])
    phase: str
    model: str
    since: str
    usd: float = Field(description="What is reserved for it.")


class RunCost(BaseModel):
    spent_usd: float = Field(description="Real money alone; that of a rehearsal is in `simulated_usd`.")
    simulated_usd: float
    is_simulated: bool = Field(description="The amounts in the tables are made up by the simulated model.")
    spent: str = Field(description="What was spent, in words.", examples=["$1.12", "rehearsal, $0.12 simulated"])
    reserved_usd: float = Field(description="For calls without an answer: under way, or over and perhaps paid.")
    perhaps_paid_usd: float = Field(description="The part of it whose calls are over without an answer.")
    perhaps_paid: list[OpenCall] = Field(description="Those calls, the newest first, at most 100.")
    estimated_usd: float = Field(description="The part of what was spent that is estimated from a program's tokens.")
    input_tokens: int
    output_tokens: int
    tables: list[CostTable]


@router.get("/{run_id}/cost", responses=READ_ONE, summary="Where the money of a run went")
async def show_cost(run_id: RunIdPath, server: ServerDep, _identity: Viewer) -> RunCost:
    stored = await get_run(server.db, run_id)
    trace = await server.traces.get(stored.run.id)
    template = find_template(stored)
    limits = {phase.key: phase.budget_usd for phase in template.phases if phase.budget_usd} if template else {}
    tables = {"Phase": trace.money.by_phase, "Model": trace.money.by_model}
    if template is not None and (personas := _by_persona(trace, template, stored)):
        tables["Persona"] = personas
    spent = await read_spent(server.db, stored.run.id)
    is_simulated = bool(stored.run.is_simulated)
    words = cost(to_usd(spent.settled_micros), to_usd(spent.simulated_micros))
    return RunCost(
        spent_usd=to_usd(spent.settled_micros),
        simulated_usd=to_usd(spent.simulated_micros),
        is_simulated=is_simulated,
        spent=f"rehearsal, {words}" if is_simulated and spent.simulated_micros else words,
        reserved_usd=to_usd(spent.reserved_micros),
        perhaps_paid_usd=to_usd(spent.unanswered_micros),
        perhaps_paid=[_to_open_call(row) for row in await list_unanswered(server.db, stored.run.id, limit=_MOST_CALLS)],
        estimated_usd=to_usd(trace.money.estimated_micros),
        input_tokens=trace.money.total.input_tokens,
        output_tokens=trace.money.total.output_tokens,
        tables=[_to_table(by, sums, limits if by == "Phase" else {}) for by, sums in tables.items()],
    )


def _to_open_call(row: LedgerRow) -> OpenCall:
    return OpenCall(
        call=row.id,
        step=row.step_key,
        phase=row.phase_key,
        model=row.model,
        since=row.created_at,
        usd=to_usd(row.amount_micros),
    )


def _by_persona(trace: RunTrace, template: WorkflowTemplate, stored: StoredRun) -> dict[str, UsageTotal]:
    """Sum up the cost by persona: a phase's role tells who it is."""
    sums: dict[str, UsageTotal] = {}
    for phase in template.phases:
        if phase.key in trace.money.by_phase:
            persona = stored.bindings[phase.role][1] if phase.role in stored.bindings else None
            sums.setdefault(persona.name if persona else phase.role, UsageTotal()).add(trace.money.by_phase[phase.key])
    return sums


def _to_table(by: str, sums: Mapping[str, UsageTotal], limits: Mapping[str, float]) -> CostTable:
    whole = sum(each.micros for each in sums.values()) or 1
    dearest_first = sorted(sums.items(), key=lambda each: -each[1].micros)
    rows = [
        CostRow(
            name=name,
            spent_usd=to_usd(each.micros),
            share=each.micros / whole,
            limit_usd=limits.get(name),
            calls=each.calls,
            input_tokens=each.input_tokens,
            output_tokens=each.output_tokens,
        )
        for name, each in dearest_first
    ]
    return CostTable(by=by, has_limits=bool(limits), rows=rows)
