"""Money: the worst case is reserved with a model call's request and settled with its response, in their transactions.

Rule: the limit is checked by the statement that reserves, inside the transaction, so that parallel calls cannot pass it
together. A reservation whose call never answered stays counted. A rehearsal counts its play money against the limits
of its own run, so that a pause can be rehearsed; real money and the day's limit never meet it.
"""

import functools
import uuid
from dataclasses import dataclass
from typing import Any

from holdfast.catalog.model_table import ModelCard, ModelTable, load_model_table
from holdfast.engine.scope import RunScope
from holdfast.enums import Backend, PauseReason
from holdfast.persistence.admission import read_day_limit
from holdfast.persistence.runs import read_budget, read_spent_in_scopes
from holdfast.persistence.statements import NewLedgerRow, now_text, reserve_money, settle_money
from holdfast.persona import AgentPersona
from holdfast.runtime.events import Event, EventKind, create_event
from holdfast.runtime.run_fold.payload_text import advise_on_budget
from holdfast.runtime.step import SameCommit, Suspended
from holdfast.workflow import Phase


class BudgetPause(Suspended):
    """A limit does not allow the next model call; the run waits for more money. `facts` say which limit."""

    reason = PauseReason.BUDGET

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts

    def events(self, run_id: str) -> list[Event]:
        return [create_event(run_id, EventKind.BUDGET_EXHAUSTED, message=str(self), **self.facts)]


def _to_micros(usd: float | None) -> int | None:
    return None if usd is None else round(usd * 1_000_000)


@dataclass
class PhaseBudget:
    """The gate before each model call of one attempt."""

    scope: RunScope
    phase: Phase
    attempt: int
    lane_id: str
    last_needed_micros: int = 0

    @property
    def phase_limit_micros(self) -> int | None:
        limit = self.phase.budget_micros
        return None if limit is None else limit + self.scope.history.raised_micros[self.phase.key]

    @property
    def is_simulated(self) -> bool:
        return self.scope.persona_of(self.phase).backend is Backend.SIMULATED

    @property
    def day_limit_micros(self) -> int | None:
        """The day's limit of this process on real money; one for all counts before it. A rehearsal has none."""
        return None if self.is_simulated else _to_micros(self.scope.config.day_budget_usd)

    @functools.cached_property
    def _models(self) -> ModelTable:
        return load_model_table(self.scope.config.config_dir)

    def reserve(
        self,
        step_key: str,
        *,
        model: str,
        input_tokens: int,
        output_tokens: int | None,
        cost_micros: int | None = None,
    ) -> "Reservation":
        """Price the worst case of a call: all of its input and as much output as it may have, or its known cost."""
        persona = self.scope.persona_of(self.phase)
        card = self._models.find_model(persona.backend, model)
        amount = cost_micros or 0
        if card is not None and cost_micros is None:
            most = card.max_output_tokens if output_tokens is None else output_tokens
            amount = card.cost_micros(input_tokens=input_tokens, output_tokens=most)
        self.last_needed_micros = amount
        return Reservation(self, step_key, amount, model, card, persona)

    async def to_pause(self) -> BudgetPause:
        """Make the pause that tells the person which limit the last call would have passed."""
        scope, needed = self.scope, self.last_needed_micros
        day = now_text()[:10]
        spent = await scope.from_rows(
            lambda: read_spent_in_scopes(scope.db, scope.run_id, self.phase.key, day, is_simulated=self.is_simulated)
        )
        day_usd, is_for_all = await scope.from_rows(lambda: read_day_limit(scope.db, scope.config.day_budget_usd))
        limits = {
            "phase": self.phase_limit_micros,
            "day": None if self.is_simulated else _to_micros(day_usd),
            "run": await scope.from_rows(lambda: read_budget(scope.db, scope.run_id)),
        }
        for name, limit in limits.items():
            if limit is not None and spent[name] + needed > limit:
                break
        message = (
            f"The next call of phase {self.phase.key!r} may cost ${needed / 1e6:.4f}, and ${spent[name] / 1e6:.4f} of "
            f"the {name}'s ${(limit or 0) / 1e6:.4f} is spent or reserved."
        )
        facts = {"limit_micros": limit, "spent_micros": spent[name], "needed_micros": needed}
        if name == "day" and is_for_all:
            facts["for_all"] = True
        message = f"{message} {advise_on_budget(scope.run_id, {'limit': name, **facts})}"
        return BudgetPause(message, limit=name, phase=self.phase.key, **facts)


@dataclass
class Reservation:
    """One call's money, from request to response."""

    money: PhaseBudget
    step_key: str
    amount_micros: int
    model: str
    card: ModelCard | None
    persona: AgentPersona
    entry_id: str = ""

    def with_intent(self) -> SameCommit:
        """Return what is written with the request; the commit is `RowRefused` if a limit would be passed."""
        # A call made again after an unknown outcome is a new reservation: the old one may have been paid.
        self.entry_id = uuid.uuid4().hex
        scope, money = self.money.scope, self.money
        is_simulated = self.persona.backend is Backend.SIMULATED
        row = NewLedgerRow(
            id=self.entry_id,
            run_id=scope.run_id,
            phase_key=money.phase.key,
            attempt=money.attempt,
            step_key=self.step_key,
            amount=self.amount_micros,
            model=self.model,
            persona=self.persona.name,
            is_simulated=is_simulated,
            phase_limit=money.phase_limit_micros,
            day_limit=money.day_limit_micros,
        )
        event = scope.log.event(
            EventKind.BUDGET_RESERVED,
            money.lane_id,
            entry=self.entry_id,
            step=self.step_key,
            amount_micros=self.amount_micros,
            **({"simulated": True} if is_simulated else {}),
        )
        return SameCommit([event], reserve_money(row))

    def with_result(
        self,
        *,
        input_tokens: int,
        output_tokens: int,
        cached_tokens: int = 0,
        cache_write_tokens: int = 0,
        cost_micros: int | None = None,
        is_estimated: bool = False,
    ) -> SameCommit:
        """Return what is written with the response: the cost by the provider, or the price of what was really used."""
        cost = cost_micros or 0
        if cost_micros is None and self.card is not None:
            cached = min(cached_tokens, input_tokens)
            cost = self.card.cost_micros(
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                cached_tokens=cached,
                cache_write_tokens=min(cache_write_tokens, input_tokens - cached),
            )
        rows = settle_money(self.entry_id, cost_micros=cost, input_tokens=input_tokens, output_tokens=output_tokens)
        event = self.money.scope.log.event(
            EventKind.BUDGET_SETTLED,
            self.money.lane_id,
            entry=self.entry_id,
            step=self.step_key,
            amount_micros=cost,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            **({"estimated": True} if is_estimated else {}),
        )
        return SameCommit([event], rows)
