"""The middleware that makes every model call and every tool call of an agent a durable step.

It must be the first of the middlewares given to an agent, and its subagents must carry the same instance. One instance
serves one lane, such as one turn of an attempt at a phase, in one process, from the lane's beginning: keys are counted.
Nothing an agent does may depend on anything but its messages and the results of its calls.
"""

import asyncio
import functools
import inspect
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NamedTuple

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage, ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from holdfast.agents.calls.adapters import (
    STEP_MARK,
    describe_args,
    find_asking_message,
    pack,
    to_model_call,
    to_reported_usage,
    to_tool_call,
    unpack,
    with_args,
    with_change_notice,
)
from holdfast.agents.calls.codec import encode_or_opaque, is_opaque
from holdfast.agents.calls.fingerprints import Fingerprints
from holdfast.agents.calls.gate import ModelCallGate
from holdfast.agents.calls.in_flight import InFlight
from holdfast.agents.calls.model_calls import CallModel, ModelSteps, Refusal
from holdfast.agents.calls.permission import Allow, ToolApprover, ToolPermission, ToolPermissions
from holdfast.agents.calls.rate_limits import ProviderSlot
from holdfast.agents.calls.retries import RetryRules
from holdfast.agents.calls.stall_detector import NUDGE, Advice, Limits, StallDetector, Stalled, describe_stall
from holdfast.agents.calls.tool_costs import ToolCosts, ToolPrice
from holdfast.agents.models.factory import Timeouts
from holdfast.agents.redaction import scrubbed
from holdfast.agents.tools.rules import NO_TOOL, UNKNOWN_TOOL, ToolCall, ToolRule
from holdfast.agents.tools.shell import Shell, grant_shell
from holdfast.errors import PhaseTimeout
from holdfast.runtime.durable import TOOL_CALL, RunLog, Step, idempotency_key
from holdfast.runtime.records import StepState, fingerprint_of
from holdfast.runtime.unknown_outcomes import Done, NotDone, OnUnknown, Unclear

AfterMutation = Callable[[], Awaitable[dict[str, Any]]]


class _Place(NamedTuple):
    lane_id: str
    key: str
    is_stand_in: bool


_inside: ContextVar[tuple["JournalMiddleware", str] | None] = ContextVar("holdfast_agent_lane", default=None)


class JournalMiddleware(AgentMiddleware[Any, Any, Any]):
    """Replays what is recorded and records what is not.

    `rules` say what each tool does, `gate` writes money beside model calls, `allow` gives the reason why a tool call is
    denied, `after_mutation` what to record with the result of a tool that changes files, and `traffic` when a provider
    may be asked. Components named in
    `accept_drift` (`model`, `system`, `tools`) may differ from the recorded ones.
    """

    def __init__(
        self,
        log: RunLog,
        lane_id: str,
        *,
        rules: Mapping[str, ToolRule] | None = None,
        gate: ModelCallGate | None = None,
        allow: Allow | None = None,
        after_mutation: AfterMutation | None = None,
        approver: ToolApprover | None = None,
        shell: Shell | None = None,
        accept_drift: frozenset[str] = frozenset(),
        retry: RetryRules | None = None,
        call_timeout_s: float = Timeouts().call_s,
        limits: Limits | None = None,
        provider_slot: ProviderSlot | None = None,
    ) -> None:
        super().__init__()
        self.lane_id = lane_id
        self._log = log
        self._rules = rules or {}
        self._models = ModelSteps(log, gate, retry or RetryRules(), call_timeout_s, provider_slot)
        self._tool_money = ToolCosts(log, gate)
        self._permits = ToolPermissions(allow, approver)
        self._shell = shell
        self._after_mutation = after_mutation
        self._accept_drift = accept_drift - {"messages"}
        self._governor = StallDetector(limits or Limits())
        self._prints = Fingerprints()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._in_flight = InFlight()
        self._looking = asyncio.Lock()

    def use_fallbacks(self, models: "Sequence[BaseChatModel]") -> None:
        """Ask these, in their order, where the model of a request does not answer."""
        self._models.fallbacks = tuple(models)

    def price_tool(self, tool: str, max_cost_micros: int, *, model: str) -> None:
        """Count money for the calls of a tool that calls models by itself."""
        self._tool_money.prices[tool] = ToolPrice(max_cost_micros, model)

    async def drain(self, timeout_s: float | None = None) -> None:
        """Wait until nothing of this lane is in flight; to be called however the agent ended.

        What is still under way after `timeout_s` is given up: its outcome will be unknown.
        """
        await self._in_flight.drain(timeout_s)
        await self._log.pay()

    async def append_event(self, kind: str, **facts: Any) -> None:
        """Write an event for watchers into this lane; no replay reads it."""
        await self._log.append(self._log.event(kind, self.lane_id, **facts))

    async def read_payloads(self, kind: str) -> list[dict[str, Any]]:
        """The facts of the events of a kind in this lane."""
        return [dict(event.payload) for event in await self._log.read(kind) if event.lane_id == self.lane_id]

    # -- model calls --------------------------------------------------------------------------------------------------

    async def awrap_model_call(
        self, request: "ModelRequest[Any]", handler: Callable[["ModelRequest[Any]"], Awaitable["ModelResponse[Any]"]]
    ) -> "ModelResponse[Any]":
        lane_id = self._enter()
        key = f"{lane_id}/m{self._count(lane_id, 'm')}"
        advice = await self._follow_advice(lane_id, key)
        nudged = handler if advice in (Advice.GO_ON, Advice.STOP) else _nudging(handler)
        first_model = 1 if advice is Advice.FALL_BACK else 0
        return await self._call_model(key, lane_id, request, nudged, first_model=first_model)

    async def ask_aside(self, model: BaseChatModel, prompt: str) -> str:
        """A model's answer to a question that is not part of the conversation; recorded as every other call."""
        lane_id = self._enter()
        key = f"{lane_id}/s{self._count(lane_id, 's')}"
        request = ModelRequest(model=model, messages=[HumanMessage(prompt)])
        response = await self._call_model(key, lane_id, request, _ask_alone)
        return response.result[-1].text

    def current_lane(self) -> str:
        return self._enter()

    async def _call_model(
        self, key: str, lane_id: str, request: "ModelRequest[Any]", handler: CallModel, *, first_model: int = 0
    ) -> "ModelResponse[Any]":
        printed = self._prints.of_request(request, lane_id)
        call = to_model_call(key, lane_id, request, printed.size)
        hashes = self._comparable(key, printed.hashes)
        work = self._models.make(call, request, handler, hashes=hashes, first_model=first_model)
        try:
            recorded = await self._in_flight.finish(work)
        except Refusal as refusal:
            raise self._unwrapped(refusal, lane_id) from refusal.error.__cause__
        self._governor.note_answer(lane_id, recorded)
        response: ModelResponse[Any] = unpack(recorded, None)
        return response

    async def _follow_advice(self, lane_id: str, key: str) -> Advice:
        """What the governor says. To stop it says only once: whoever resumes after that has decided to go on."""
        advice, records = self._governor.advise(lane_id), self._log.records.by_key
        if ("step", key) in records:
            return advice
        if lane_id == self.lane_id and self._governor.is_out_of_time(lane_id):
            raise PhaseTimeout("The agent has worked longer than its phase may take.")
        if advice is not Advice.STOP:
            return advice
        diagnosis = self._governor.diagnose(lane_id)
        if ("step", f"{key}/stalled") not in records:
            # crash: without this record the stall is found again; with it, the next process goes on.
            await self._log.step(Step(f"{key}/stalled", lane_id), lambda: diagnosis)
            raise Stalled(describe_stall(diagnosis), **diagnosis)
        self._governor.forgive(lane_id)
        return Advice.NUDGE

    # -- tool calls ---------------------------------------------------------------------------------------------------

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable["ToolMessage | Command[Any]"]]
    ) -> "ToolMessage | Command[Any]":
        call = to_tool_call(request.tool_call)
        place = self._find_place(request, call)
        is_known = place.is_stand_in or request.tool is not None
        rule = self._rules.get(call.name, UNKNOWN_TOOL) if is_known else NO_TOOL
        live: list[Any] = []

        async def effect(args: Mapping[str, Any] | None) -> Any:
            # A subagent started by this tool keeps its own count under the tool's key.
            _inside.set((self, place.key))
            call_request = request if args is None else with_args(request, args)
            live.append(await scrubbed(_awaited(handler(call_request))))
            return live[0] if args is None else with_change_notice(live[0], args)

        try:
            work = self._make_tool_call(place, call, rule, effect, is_known=is_known)
            result = await self._in_flight.finish(work, tool_key=place.key)
        except Refusal as refusal:
            raise self._unwrapped(refusal, place.lane_id) from refusal.error.__cause__
        self._governor.note_result(place.lane_id, place.key, call, result)
        if live and place.is_stand_in and is_opaque(result["value"]):
            return live[0]  # type: ignore[no-any-return]  # whoever drives us directly gets what its handler gave
        answer: ToolMessage | Command[Any] = unpack(result, call)
        return answer

    async def _make_tool_call(
        self,
        place: _Place,
        call: ToolCall,
        rule: ToolRule,
        make: Callable[[Mapping[str, Any] | None], Awaitable[Any]],
        *,
        is_known: bool,
    ) -> Any:
        details = {"tool": call.name, "call_id": call.call_id, "args": describe_args(call)}
        hashes = fingerprint_of(tool=call.name, arguments=encode_or_opaque(dict(call.args)))
        record = self._log.records.by_key.get(("step", place.key))
        is_new = record is None or record.is_skipped or record.state is StepState.OPEN
        permit = await self._permits.get(place.key, place.lane_id, call, is_new=is_new, is_known=is_known)
        details.update(permit.facts)
        if permit.refusal is not None:
            step = Step(place.key, place.lane_id, fingerprint=hashes, kinds=TOOL_CALL, details=details)
            refusal = permit.refusal
            return await self._log.step(step, lambda: pack(_denial(call, refusal)))
        call = call if permit.args is None else replace(call, args=permit.args)
        before = "" if record is None else record.fingerprint.get("before", "")
        if rule.look is not None:
            before = hashes["before"] = rule.look(call) if is_new else before
        is_begun = rule.can_reattach(idempotency_key(self._log.run_id, place.key), record)
        priced = self._tool_money.to_call(place.key, place.lane_id, call.name, is_begun=is_begun)
        effect: Callable[[], Awaitable[Any]] = functools.partial(make, permit.args)
        effect = effect if priced is None else priced.counting_failures(effect)
        step = Step(
            place.key,
            place.lane_id,
            with_intent=None if priced is None else priced.with_intent,
            with_result=None if priced is None else priced.with_result,
            on_unknown=self._to_on_unknown(rule, call, before),
            fingerprint=hashes,
            kinds=TOOL_CALL,
            details=details,
            # The next to read it is a model, and what it is asked is recorded first.
            is_acked_late=not (rule.is_mutating or place.is_stand_in),
        )
        return await self._log.step(step, lambda: self._finish(rule, self._with_shell(permit, effect)))

    async def _with_shell(self, permit: ToolPermission, effect: Callable[[], Awaitable[Any]]) -> Any:
        if self._shell is not None:
            grant_shell(replace(self._shell, has_network=permit.has_network))
        return await effect()

    async def _finish(self, rule: ToolRule, outcome: Awaitable[Any]) -> Any:
        began = time.monotonic()
        answer = await outcome
        took_s = round(time.monotonic() - began, 3)
        facts: dict[str, Any] = {}
        if rule.is_mutating and self._after_mutation is not None:
            async with self._looking:
                facts = await self._after_mutation()
        # crash: the files are changed and nothing says so yet; the tool's rule for unknown outcomes decides.
        if took_s:
            facts["took_s"] = took_s
        return pack(answer, usage=to_reported_usage(answer), **facts)

    def _to_on_unknown(self, rule: ToolRule, call: ToolCall, before: str) -> OnUnknown:
        reconcile = rule.on_unknown
        if reconcile == "reattach":
            return rule.look_for_begun
        if isinstance(reconcile, str):
            return reconcile

        async def ask_destination(_key: str) -> Done | NotDone | Unclear:
            outcome = await reconcile(call, before)
            if not isinstance(outcome, Done):
                return outcome
            answer = ToolMessage(content=str(outcome.result), name=call.name, tool_call_id=call.call_id)
            return Done(await self._finish(rule, _immediate(answer)))

        return ask_destination

    # -- places -------------------------------------------------------------------------------------------------------

    def _enter(self) -> str:
        """The lane that runs now. Raises if it must not go on in this process."""
        inside = _inside.get()
        lane_id = inside[1] if inside is not None and inside[0] is self else self.lane_id
        self._in_flight.check(lane_id)
        return lane_id

    def _count(self, lane_id: str, sort: str) -> int:
        self._counts[lane_id, sort] += 1
        return self._counts[lane_id, sort] - 1

    def _find_place(self, request: ToolCallRequest, call: ToolCall) -> _Place:
        lane_id = self._enter()
        answer = find_asking_message(request, call.call_id)
        if answer is None:
            return _Place(lane_id, f"{lane_id}/x{self._count(lane_id, 'x')}", is_stand_in=True)
        position = [call_request["id"] for call_request in answer.tool_calls].index(call.call_id)
        return _Place(lane_id, f"{answer.response_metadata[STEP_MARK]}.t{position}", is_stand_in=False)

    def _comparable(self, key: str, hashes: Mapping[str, str]) -> dict[str, str]:
        is_recorded = ("step", key) in self._log.records.by_key
        return {name: value for name, value in hashes.items() if not (is_recorded and name in self._accept_drift)}

    def _unwrapped(self, refusal: Refusal, lane_id: str) -> BaseException:
        """What to raise for a refusal: in a subagent itself, so that the tool which runs it does not fail for it."""
        return refusal.error if lane_id == self.lane_id else refusal


def _nudging(handler: CallModel) -> CallModel:
    """Not part of the request that is recorded: when an agent is nudged may change without breaking a replay."""

    async def nudge(request: "ModelRequest[Any]") -> "ModelResponse[Any]":
        return await handler(request.override(messages=[*request.messages, HumanMessage(NUDGE)]))

    return nudge


async def _ask_alone(request: "ModelRequest[Any]") -> "ModelResponse[Any]":
    return ModelResponse(result=[await request.model.ainvoke(request.messages)])


def _denial(call: ToolCall, reason: str) -> ToolMessage:
    return ToolMessage(content=f"Denied: {reason}", name=call.name, tool_call_id=call.call_id, status="error")


async def _immediate(answer: Any) -> Any:
    return answer


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
