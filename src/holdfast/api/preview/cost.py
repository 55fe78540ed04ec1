"""What a run may cost before it is started: what such runs cost, or a guess from the table of prices.

Rule: a guess says that it is one. It is never used to stop anything; limits are.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from pydantic import BaseModel, Field

from holdfast.api.serialize import to_usd
from holdfast.api.workflow_statistics import WorkflowStatistics
from holdfast.catalog.model_table import ModelTable
from holdfast.enums import Backend
from holdfast.persona import AgentPersona
from holdfast.presentation.format import duration, money, plural
from holdfast.presentation.status import Note
from holdfast.workflow import WorkflowTemplate

# A phase of agent work is a dozen calls that each read what was said before. Real phases lie between a third and three
# times of this, which is why low and high are told as well.
GUESSED_INPUT_TOKENS = 240_000
GUESSED_OUTPUT_TOKENS = 12_000
_SPREAD = 3


class Estimate(BaseModel):
    basis: Literal["simulated", "runs", "prices", "unknown"] = Field(
        description="`runs`: completed runs of this workflow; `prices`: the table of prices and a guess of tokens."
    )
    usd: float | None
    low_usd: float | None
    high_usd: float | None
    seconds: float | None = Field(description="The median time of past runs, if there are any.")
    runs: int = Field(description="How many past runs it is made of.")
    unpriced: list[str] = Field(description="Models whose prices are not known; their cost is not in it.")
    amount: str = Field(description="The figure as it is told.", examples=["about $1.20"])
    summary: str = Field(description="What it is made of, and how long such runs took.")


class UsdRange(NamedTuple):
    """What something is expected to cost, and between what."""

    usd: float
    low_usd: float
    high_usd: float


def estimate(
    template: WorkflowTemplate,
    personas: Mapping[str, AgentPersona],
    *,
    past: WorkflowStatistics | None,
    table: ModelTable,
    is_simulated: bool,
) -> Estimate:
    """Estimate what a run costs. `personas` is by role; a role that nobody fills counts as unknown."""
    seconds, runs = (past.median_s, past.measured) if past and past.is_rehearsed == is_simulated else (None, 0)
    if is_simulated:
        return to_estimate("simulated", UsdRange(0.0, 0.0, 0.0), seconds=seconds, runs=runs)
    if runs and past and past.median_cost_usd:
        middle, most = past.median_cost_usd, past.most_cost_usd or past.median_cost_usd
        dollars = UsdRange(middle, middle / _SPREAD, max(most, middle))
        return to_estimate("runs", dollars, seconds=seconds, runs=runs)
    usd, unpriced = _guess(template, personas, table)
    if usd is None:
        return to_estimate("unknown", None, seconds=seconds, runs=runs, unpriced=unpriced)
    dollars = UsdRange(usd, usd / _SPREAD, usd * _SPREAD)
    return to_estimate("prices", dollars, seconds=seconds, runs=runs, unpriced=unpriced)


def _guess(
    template: WorkflowTemplate, personas: Mapping[str, AgentPersona], table: ModelTable
) -> tuple[float | None, list[str]]:
    micros, unpriced, is_any_priced = 0, [], False
    for phase in template.phases:
        persona = personas.get(phase.role)
        card = table.find_model(persona.backend, persona.model) if persona and persona.model else None
        if card is None:
            unpriced.append(_name(persona))
            continue
        is_any_priced = True
        micros += card.cost_micros(input_tokens=GUESSED_INPUT_TOKENS, output_tokens=GUESSED_OUTPUT_TOKENS)
    return (to_usd(micros) if is_any_priced else None), _each_once(unpriced)


def _name(persona: AgentPersona | None) -> str:
    if persona is None:
        return "a role that nobody can take now"
    return persona.name if persona.backend is Backend.COMMAND else persona.model


def _each_once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def to_estimate(
    basis: Literal["simulated", "runs", "prices", "unknown"],
    dollars: UsdRange | None,
    *,
    seconds: float | None,
    runs: int,
    unpriced: Iterable[str] = (),
) -> Estimate:
    missing = list(unpriced)
    usd, low_usd, high_usd = dollars or (None, None, None)
    amount, origin = _explain(basis, usd, low_usd, high_usd, runs=runs, unpriced=missing)
    of_what = "rehearsals" if basis == "simulated" else "runs"
    takes = "" if seconds is None else f" It takes {duration(seconds)}, as {of_what} of it took so far."
    return Estimate(
        basis=basis,
        usd=usd,
        low_usd=low_usd,
        high_usd=high_usd,
        seconds=seconds,
        runs=runs,
        unpriced=missing,
        amount=amount,
        summary=origin + takes,
    )


def _explain(
    basis: str, usd: float | None, low: float | None, high: float | None, *, runs: int, unpriced: list[str]
) -> tuple[str, str]:
    names = ", ".join(unpriced)
    missing = f" Not counted, because no price is known: {names}." if names else ""
    match basis:
        case "simulated":
            return "$0", (
                "A rehearsal calls no real model: nothing is paid, and the limits of the settings do not count. "
                "A limit set here is rehearsed with made-up prices."
            )
        case "runs":
            dearest = f"the dearest was {money(high)}."
            return f"about {money(usd)}", f"The median of {plural(runs, 'completed run')}; {dearest}{missing}"
        case "prices":
            guess = "A guess from the table of prices: nobody has finished a run of it yet."
            return f"{money(low)} to {money(high)}", f"{guess}{missing}"
    return "not known", f"No price is known for {names or 'its models'}."


def explain_limits(
    estimate: Estimate | None, *, budget_usd: float | None, left_usd: float | None, day_usd: float | None
) -> list[Note]:
    """Explain what the limits mean for a run that costs about this much."""
    if estimate is None or estimate.basis == "simulated":
        return []
    if budget_usd is None and left_usd is None:
        words = "There is no limit: the run spends what it needs. Set one here, or run_budget_usd for all runs."
        return [Note("waiting", words)]
    notes = []
    usd = estimate.usd or 0.0
    if budget_usd is not None:
        is_tight = budget_usd < usd
        at = f"The limit of {money(budget_usd)} is below the estimate. At the limit" if is_tight else ""
        words = f"{at or f'At {money(budget_usd)}'} the run waits for more; nothing done is lost."
        notes.append(Note("waiting" if is_tight else "idle", words))
    if left_usd is not None:
        is_tight = left_usd == 0 or left_usd < usd
        then = "; the run may have to wait until tomorrow" if is_tight else ""
        words = f"{money(left_usd)} of today's {money(day_usd)} is left{then}."
        notes.append(Note("waiting" if is_tight else "idle", words))
    return notes
