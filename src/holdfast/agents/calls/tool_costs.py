"""Money beside tool calls: for a tool that calls models by itself, such as a whole coding agent."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from holdfast.agents.calls.conversion import to_usage
from holdfast.agents.calls.gate import ModelCall, ModelCallGate, Usage
from holdfast.errors import AgentFailed
from holdfast.runtime.run_log import RunLog
from holdfast.runtime.step import SameCommit


@dataclass(frozen=True)
class ToolPrice:
    """The most a call of the tool is said to cost, and whose cost it is."""

    max_cost_micros: int
    model: str


class ToolCosts:
    """Reserves with the intent of a priced tool's call and settles with its result, by what the tool has reported.

    A call that reports nothing has cost the most it may.
    """

    def __init__(self, log: RunLog, gate: ModelCallGate | None) -> None:
        self._log = log
        self._gate = gate
        self.prices: dict[str, ToolPrice] = {}

    def to_call(self, key: str, lane_id: str, tool: str, *, is_begun: bool) -> "PricedCall | None":
        price = self.prices.get(tool)
        if price is None or self._gate is None:
            return None
        call = ModelCall(key, lane_id, price.model, 0, 0, max_cost_micros=price.max_cost_micros, is_begun=is_begun)
        return PricedCall(self._log, self._gate, call)


@dataclass(frozen=True)
class PricedCall:
    _log: RunLog
    _gate: ModelCallGate
    _call: ModelCall

    def with_intent(self) -> SameCommit:
        return self._gate.before(self._call)

    def with_result(self, result: Any) -> SameCommit:
        return self._settle(to_usage(result))

    def counting_failures(self, effect: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
        """Wrap an effect so that its cost is counted too where it fails after having reported it."""

        async def work() -> Any:
            try:
                return await effect()
            except AgentFailed as error:
                commit = self._settle(Usage(**reported) if (reported := error.facts.get("usage")) else None)
                # crash: the money is counted and the failure is not recorded; whoever finds the command counts it anew.
                await self._log.append(*commit.events, rows=commit.rows)
                raise

        return work

    def _settle(self, usage: Usage | None) -> SameCommit:
        most = self._call.max_cost_micros
        if usage is None or usage.cost_micros is None:
            tokens = (0, 0) if usage is None else (usage.input_tokens, usage.output_tokens)
            usage = Usage(*tokens, cost_micros=most)
        return self._gate.after(self._call, usage)
