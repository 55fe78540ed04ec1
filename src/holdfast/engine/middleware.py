"""What stands between an agent and its calls in one turn of a phase: the journal, with money, policy and tree ids.

Imported lazily: it brings the agent framework with it.
"""

from dataclasses import dataclass
from typing import Any

from holdfast.agents.journaling import JournalMiddleware
from holdfast.agents.model_calls import ModelCall, Usage
from holdfast.agents.policy import FilePolicy
from holdfast.agents.tool_rules import file_tool_rules
from holdfast.engine.budget import PhaseMoney, Reservation
from holdfast.engine.scope import RunScope
from holdfast.runtime.durable import Beside
from holdfast.workflow import Phase
from holdfast.workspace import write_tree

_DRAIN_S = 5.0  # below what `abort` waits for a live owner


@dataclass(frozen=True)
class TurnMiddleware:
    """The middleware of one turn, and the way to wait for what it still has in flight."""

    journal: JournalMiddleware

    @property
    def for_agent(self) -> list[Any]:
        return [self.journal]

    async def drain(self) -> None:
        await self.journal.drain(_DRAIN_S)


def make_middleware(scope: RunScope, phase: Phase, lane_id: str, money: PhaseMoney) -> TurnMiddleware:
    root = scope.place.root

    async def after_mutation() -> dict[str, Any]:
        return {"tree": await scope.on_disk(lambda: write_tree(scope.place).tree_id)}

    return TurnMiddleware(
        JournalMiddleware(
            scope.log,
            lane_id,
            rules=file_tool_rules(root),
            gate=MoneyGate(money),
            allow=FilePolicy(root, only_write=phase.expected_artifact.path if phase.read_only else None),
            after_mutation=after_mutation,
        )
    )


class MoneyGate:
    """A `ModelCallGate` that reserves with the request and settles with the response."""

    def __init__(self, money: PhaseMoney) -> None:
        self._money = money
        self._reserved: dict[str, Reservation] = {}

    def before(self, call: ModelCall) -> Beside:
        reservation = self._money.reserve(
            call.key, model=call.model, input_tokens=call.max_input_tokens, output_tokens=call.max_output_tokens
        )
        self._reserved[call.key] = reservation
        return reservation.beside_intent()

    def after(self, call: ModelCall, usage: Usage | None) -> Beside:
        reservation = self._reserved.get(call.key)
        if reservation is None or usage is None:
            return Beside()  # what was used is not known: the reservation stays counted
        return reservation.beside_result(
            input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, cached_tokens=usage.cached_tokens
        )

    def failed(self, call: ModelCall, error: Exception) -> Beside:
        return Beside()  # whether a failed call was charged is not known: it stays counted
