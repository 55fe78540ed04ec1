"""The middleware that makes every model call and every tool call of an agent a durable step.

It must be the first of the middlewares given to an agent, and its subagents must carry the same instance. One instance
serves one lane, such as one turn of an attempt at a phase, in one process, from the lane's beginning: keys are counted.
Nothing an agent does may depend on anything but its messages and the results of its calls.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from holdfast.agents.calls.in_flight import InFlight
from holdfast.agents.calls.lane_keys import LaneKeys
from holdfast.agents.calls.model_calls import ModelCallRecorder
from holdfast.agents.calls.services import TurnServices
from holdfast.agents.calls.stall_detector import StallDetector
from holdfast.agents.calls.tool_calls import AfterMutation, ToolCallRecorder
from holdfast.agents.calls.tool_costs import ToolPrice
from holdfast.agents.sent_requests import SentRequests
from holdfast.agents.tools.rules import ToolRule
from holdfast.runtime.run_log import RunLog

_recorded_here: ContextVar[object] = ContextVar("holdfast_recorded_here", default=None)


class JournalMiddleware(AgentMiddleware[Any, Any, Any]):
    """Replays what is recorded and records what is not.

    `after_mutation` returns what to record with the result of a tool that changes files. Components named in
    `accept_drift` (`model`, `system`, `tools`) may differ from the recorded ones.
    """

    def __init__(
        self,
        log: RunLog,
        lane_id: str,
        services: TurnServices | None = None,
        *,
        after_mutation: AfterMutation | None = None,
        accept_drift: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__()
        services = services or TurnServices()
        self.lane_id = lane_id
        self._log = log
        self.read_image = services.read_image
        self.shell = services.shell
        """In which the commands of its calls run."""
        self._in_flight = InFlight()
        self._keys = LaneKeys(lane_id, self._in_flight)
        detector = StallDetector(services.limits)
        sent = SentRequests() if services.keeps_prompts else None
        self._models = ModelCallRecorder(log, self._keys, self._in_flight, detector, services, accept_drift, sent)
        self._tools = ToolCallRecorder(log, self._keys, self._in_flight, detector, services, after_mutation, sent)

    async def awrap_model_call(
        self, request: "ModelRequest[Any]", handler: Callable[["ModelRequest[Any]"], Awaitable["ModelResponse[Any]"]]
    ) -> "ModelResponse[Any]":
        return await self._models.call(request, handler)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable["ToolMessage | Command[Any]"]]
    ) -> "ToolMessage | Command[Any]":
        token = _recorded_here.set(self)
        try:
            return await self._tools.call(request, handler)
        finally:
            _recorded_here.reset(token)

    @property
    def is_recording(self) -> bool:
        """True inside a tool call that this middleware records."""
        return _recorded_here.get() is self

    async def ask_aside(self, model: BaseChatModel, prompt: str) -> str:
        """Ask a model something that is not part of the conversation; recorded as every other call."""
        return await self._models.ask_aside(model, prompt)

    def use_fallbacks(self, models: Sequence[BaseChatModel]) -> None:
        """Ask these, in their order, where the model of a request does not answer."""
        self._models.fallbacks = tuple(models)

    def price_tool(self, tool: str, max_cost_micros: int, *, model: str) -> None:
        """Count money for the calls of a tool that calls models by itself."""
        self._tools.costs.prices[tool] = ToolPrice(max_cost_micros, model)

    def set_rule(self, tool: str, rule: ToolRule) -> None:
        """Replace what is known of a tool, for an agent that knows more of it."""
        self._tools.rules[tool] = rule

    def current_lane(self) -> str:
        """Return the lane of the current task: this middleware's, or that of the subagent it runs in."""
        return self._keys.current_lane()

    async def append_event(self, kind: str, **payload: Any) -> None:
        """Write an event for watchers into this lane; no replay reads it."""
        await self._log.append(self._log.event(kind, self.lane_id, **payload))

    async def read_payloads(self, kind: str) -> list[dict[str, Any]]:
        """Read the payloads of the events of a kind in this lane."""
        return [dict(event.payload) for event in await self._log.read(kind) if event.lane_id == self.lane_id]

    async def drain(self, timeout_s: float | None = None) -> None:
        """Wait until nothing of this lane is in flight; to be called however the agent ended.

        What is still under way after `timeout_s` is given up: its outcome will be unknown.
        """
        await self._in_flight.drain(timeout_s)
        await self._log.flush_deferred()
