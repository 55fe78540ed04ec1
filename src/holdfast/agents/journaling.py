"""The middleware that makes every model call and every tool call of an agent a durable step.

It must be the first of the middlewares given to an agent, and its subagents must carry the same instance. One instance
serves one lane, such as one turn of an attempt at a phase, in one process, from the lane's beginning: keys are counted.
Nothing an agent does may depend on anything but its messages and the results of its calls.
"""

import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from holdfast.agents.answers import STEP_MARK, pack, stamp, to_usage, unpack
from holdfast.agents.asked import describe_args, find_asking_message, to_model_call, to_tool_call
from holdfast.agents.codec import encode_or_opaque, is_opaque
from holdfast.agents.fingerprints import Fingerprints
from holdfast.agents.in_flight import InFlight
from holdfast.agents.model_calls import ModelCall, ModelCallGate
from holdfast.agents.tool_rules import NO_TOOL, UNKNOWN_TOOL, ToolCall, ToolRule
from holdfast.errors import RowRefused
from holdfast.runtime.durable import MODEL_CALL, TOOL_CALL, Beside, Done, NotDone, OnUnknown, RunLog, Step
from holdfast.runtime.records import StepState, fingerprint_of

Allow = Callable[[str, Mapping[str, Any]], str | None]
AfterMutation = Callable[[], Awaitable[dict[str, Any]]]


class _Place(NamedTuple):
    lane_id: str
    key: str
    is_stand_in: bool


class _Refusal(BaseException):
    """A model call was not admitted. Nobody's failure, and therefore not recorded as that of the tool around it."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


_inside: ContextVar[tuple["JournalMiddleware", str] | None] = ContextVar("holdfast_agent_lane", default=None)


class JournalMiddleware(AgentMiddleware[Any, Any, Any]):
    """Replays what is recorded and records what is not.

    `rules` say what each tool does, `gate` writes money beside model calls, `allow` gives the reason why a tool call is
    denied, and `after_mutation` what to record with the result of a tool that changes files. Components named in
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
        accept_drift: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__()
        self.lane_id = lane_id
        self._log = log
        self._rules = rules or {}
        self._gate = gate
        self._allow = allow
        self._after_mutation = after_mutation
        self._accept_drift = accept_drift - {"messages"}
        self._prints = Fingerprints()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._in_flight = InFlight()
        self._looking = asyncio.Lock()

    async def drain(self, timeout_s: float | None = None) -> None:
        """Wait until nothing of this lane is in flight; to be called however the agent ended.

        What is still under way after `timeout_s` is given up: its outcome will be unknown.
        """
        await self._in_flight.drain(timeout_s)

    # -- model calls --------------------------------------------------------------------------------------------------

    async def awrap_model_call(
        self, request: "ModelRequest[Any]", handler: Callable[["ModelRequest[Any]"], Awaitable["ModelResponse[Any]"]]
    ) -> "ModelResponse[Any]":
        lane_id = self._enter()
        key = f"{lane_id}/m{self._count(lane_id, 'm')}"
        printed = self._prints.of_request(request)
        call = to_model_call(key, lane_id, request, printed.size)
        work = self._make_model_call(call, request, handler, self._comparable(key, printed.hashes))
        try:
            response: ModelResponse[Any] = unpack(await self._in_flight.finish(work), None)
        except _Refusal as refusal:
            raise self._unwrapped(refusal, lane_id) from refusal.error.__cause__
        return response

    async def _make_model_call(
        self,
        call: ModelCall,
        request: "ModelRequest[Any]",
        handler: Callable[["ModelRequest[Any]"], Awaitable["ModelResponse[Any]"]],
        hashes: Mapping[str, str],
    ) -> Any:
        gate = self._gate

        async def effect() -> Any:
            response = await _awaited(handler(request))
            return pack(stamp(response, call.key, request.messages), usage=to_usage(response))

        step = Step(
            call.key,
            call.lane_id,
            has_intent=True,
            fingerprint=hashes,
            kinds=MODEL_CALL,
            details={"model": call.model},
            beside_intent=(lambda: _admitted(gate, call)) if gate else None,
            beside_result=(lambda result: gate.after(call, to_usage(result))) if gate else None,
        )
        try:
            return await self._log.step(step, effect if gate is None else self._telling_failure(call, gate, effect))
        except RowRefused as error:
            raise _Refusal(error) from error

    def _telling_failure(
        self, call: ModelCall, gate: ModelCallGate, effect: Callable[[], Awaitable[Any]]
    ) -> Callable[[], Awaitable[Any]]:
        async def watched() -> Any:
            try:
                return await effect()
            except Exception as error:
                beside = gate.failed(call, error)
                if beside.events or beside.rows:
                    # crash: after this the money is free and the call has no outcome yet, so it is simply made again.
                    await self._log.append(*beside.events, rows=beside.rows)
                raise

        return watched

    # -- tool calls ---------------------------------------------------------------------------------------------------

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable["ToolMessage | Command[Any]"]]
    ) -> "ToolMessage | Command[Any]":
        call = to_tool_call(request.tool_call)
        place = self._find_place(request, call)
        is_known = place.is_stand_in or request.tool is not None
        rule = self._rules.get(call.name, UNKNOWN_TOOL) if is_known else NO_TOOL
        live: list[Any] = []

        async def effect() -> Any:
            # A subagent started by this tool keeps its own count under the tool's key.
            _inside.set((self, place.key))
            live.append(await _awaited(handler(request)))
            return live[0]

        try:
            work = self._make_tool_call(place, call, rule, effect)
            result = await self._in_flight.finish(work, tool_key=place.key)
        except _Refusal as refusal:
            raise self._unwrapped(refusal, place.lane_id) from refusal.error.__cause__
        if live and place.is_stand_in and is_opaque(result["value"]):
            return live[0]  # type: ignore[no-any-return]  # whoever drives us directly gets what its handler gave
        answer: ToolMessage | Command[Any] = unpack(result, call)
        return answer

    async def _make_tool_call(
        self, place: _Place, call: ToolCall, rule: ToolRule, effect: Callable[[], Awaitable[Any]]
    ) -> Any:
        told = {"tool": call.name, "call_id": call.call_id, "args": describe_args(call)}
        hashes = fingerprint_of(tool=call.name, arguments=encode_or_opaque(dict(call.args)))
        record = self._log.records.by_key.get(("step", place.key))
        is_new = record is None or record.is_skipped or record.state is StepState.OPEN
        reason = self._allow(call.name, call.args) if self._allow and is_new else None
        if reason is not None:
            step = Step(
                place.key, place.lane_id, fingerprint=hashes, kinds=TOOL_CALL, details={**told, "denied": reason}
            )
            return await self._log.step(step, lambda: pack(_denial(call, reason)))
        before = "" if record is None else record.fingerprint.get("before", "")
        if rule.look is not None:
            before = hashes["before"] = rule.look(call) if is_new else before
        step = Step(
            place.key,
            place.lane_id,
            on_unknown=self._to_on_unknown(rule, call, before),
            fingerprint=hashes,
            kinds=TOOL_CALL,
            details=told,
        )
        return await self._log.step(step, lambda: self._finish(rule, effect()))

    async def _finish(self, rule: ToolRule, outcome: Awaitable[Any]) -> Any:
        answer = await outcome
        facts: dict[str, Any] = {}
        if rule.is_mutating and self._after_mutation is not None:
            async with self._looking:
                facts = await self._after_mutation()
        # crash: the files are changed and nothing says so yet; the tool's rule for unknown outcomes decides.
        return pack(answer, **facts)

    def _to_on_unknown(self, rule: ToolRule, call: ToolCall, before: str) -> OnUnknown:
        reconcile = rule.on_unknown
        if isinstance(reconcile, str):
            return reconcile

        async def ask_destination(_key: str) -> Done | NotDone:
            outcome = await reconcile(call, before)
            if isinstance(outcome, NotDone):
                return outcome
            answer = ToolMessage(content=str(outcome.result), name=call.name, tool_call_id=call.call_id)
            return Done(await self._finish(rule, _given(answer)))

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
        asked_by = find_asking_message(request, call.call_id)
        if asked_by is None:
            return _Place(lane_id, f"{lane_id}/x{self._count(lane_id, 'x')}", is_stand_in=True)
        position = [asked["id"] for asked in asked_by.tool_calls].index(call.call_id)
        return _Place(lane_id, f"{asked_by.response_metadata[STEP_MARK]}.t{position}", is_stand_in=False)

    def _comparable(self, key: str, hashes: Mapping[str, str]) -> dict[str, str]:
        is_recorded = ("step", key) in self._log.records.by_key
        return {name: value for name, value in hashes.items() if not (is_recorded and name in self._accept_drift)}

    def _unwrapped(self, refusal: "_Refusal", lane_id: str) -> BaseException:
        """What to raise for a refusal: in a subagent itself, so that the tool which runs it does not fail for it."""
        return refusal.error if lane_id == self.lane_id else refusal


def _admitted(gate: ModelCallGate, call: ModelCall) -> Beside:
    try:
        return gate.before(call)
    except Exception as error:
        raise _Refusal(error) from error


def _denial(call: ToolCall, reason: str) -> ToolMessage:
    return ToolMessage(content=f"Denied: {reason}", name=call.name, tool_call_id=call.call_id, status="error")


async def _given(answer: Any) -> Any:
    return answer


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
