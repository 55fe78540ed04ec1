"""What a run may cost before it is started: what such runs cost, or a guess from the table of prices.

Rule: a guess says that it is one. It is never used to stop anything; limits are.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import BaseModel, Field

from holdfast.api.shaping import to_usd
from holdfast.api.statistics import WorkflowStatistics
from holdfast.catalog.models import ModelTable
from holdfast.enums import Backend
from holdfast.persona import AgentPersona
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


def estimate(
    template: WorkflowTemplate,
    personas: Mapping[str, AgentPersona],
    *,
    past: WorkflowStatistics | None,
    table: ModelTable,
    is_simulated: bool,
) -> Estimate:
    """`personas` is by role; a role that nobody fills counts as unknown."""
    seconds, runs = (past.median_s, past.measured) if past and past.is_rehearsed == is_simulated else (None, 0)
    if is_simulated:
        return _to_estimate("simulated", 0.0, 0.0, 0.0, seconds=seconds, runs=runs)
    if runs and past and past.median_cost_usd:
        middle, most = past.median_cost_usd, past.most_cost_usd or past.median_cost_usd
        return _to_estimate("runs", middle, middle / _SPREAD, max(most, middle), seconds=seconds, runs=runs)
    usd, unpriced = _guess(template, personas, table)
    if usd is None:
        return _to_estimate("unknown", None, None, None, seconds=seconds, runs=runs, unpriced=unpriced)
    return _to_estimate("prices", usd, usd / _SPREAD, usd * _SPREAD, seconds=seconds, runs=runs, unpriced=unpriced)


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
        return "nobody"
    return persona.name if persona.backend is Backend.COMMAND else persona.model


def _each_once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _to_estimate(
    basis: Literal["simulated", "runs", "prices", "unknown"],
    usd: float | None,
    low_usd: float | None,
    high_usd: float | None,
    *,
    seconds: float | None,
    runs: int,
    unpriced: Iterable[str] = (),
) -> Estimate:
    return Estimate(
        basis=basis,
        usd=usd,
        low_usd=low_usd,
        high_usd=high_usd,
        seconds=seconds,
        runs=runs,
        unpriced=list(unpriced),
    )
