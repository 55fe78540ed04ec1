"""A model call as a durable step: money, attempts, fallbacks, live text and time-outs, all of them journaled."""

import asyncio
import contextlib
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware import ModelRequest, ModelResponse

from holdfast.agents.calls.adapters import output_limit, pack, priced_name, stamp, to_usage
from holdfast.agents.calls.gate import ModelCall, ModelCallGate
from holdfast.agents.calls.live_text import LiveText
from holdfast.agents.calls.provider_errors import classify_error
from holdfast.agents.calls.rate_limits import ProviderSlot
from holdfast.agents.calls.retries import Attempts, RetryRules
from holdfast.errors import Nondeterminism, RowRefused
from holdfast.runtime.durable import MODEL_CALL, Failure, RunLog, SameCommit, Step, Stopped
from holdfast.runtime.events import EventKind
from holdfast.runtime.records import StepState

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

_NOT_CALLED_NOW = (StepState.COMPLETED, StepState.FAILED, StepState.WAITING)
CallModel = Callable[["ModelRequest[Any]"], Awaitable["ModelResponse[Any]"]]


class Refusal(BaseException):
    """A model call was not admitted. Nobody's failure, and therefore not recorded as that of the tool around it."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class ModelSteps:
    """Makes the model calls of one journal. `fallbacks` stand in for a model that does not answer, in this order."""

    def __init__(
        self,
        log: RunLog,
        gate: ModelCallGate | None,
        rules: RetryRules,
        call_timeout_s: float,
        provider_slot: ProviderSlot | None = None,
    ) -> None:
        self._log = log
        self._gate = gate
        self._provider_slot = provider_slot
        self._rules = rules
        self._call_timeout_s = call_timeout_s
        self.fallbacks: Sequence[BaseChatModel] = ()

    async def make(
        self,
        call: ModelCall,
        request: "ModelRequest[Any]",
        handler: CallModel,
        *,
        hashes: Mapping[str, str],
        first_model: int = 0,
    ) -> Any:
        """The recorded answer, or that of the first model that gives one. Raises what the last of them raised."""
        record = self._log.records.by_key.get(("step", call.key))
        attempts = Attempts(
            [request.model, *self.fallbacks], self._rules, record.error if record is not None else {}, clock=time.time
        )
        attempts.skip_to(first_model)
        one = _OneCall(self, call, request, handler, attempts, number=record.attempt if record is not None else 0)
        step = Step(
            call.key,
            call.lane_id,
            has_intent=True,
            fingerprint=hashes,
            kinds=MODEL_CALL,
            details=one.details,
            with_intent=one.with_intent,
            with_result=one.with_result,
            on_failure=one.on_failure,
        )
        try:
            if record is None or record.state not in _NOT_CALLED_NOW:
                await one.enter()
            return await self._log.step(step, one.effect)
        except RowRefused as error:
            raise Refusal(error) from error
        except Stopped as stopped:
            raise _explained(stopped, self._log.run_id, call) from stopped.__cause__
        finally:
            await one.leave()

    # -- what one call needs ------------------------------------------------------------------------------------------

    def live_text(self, call: ModelCall, number: int) -> LiveText:
        return LiveText(self._log, call.key, call.lane_id, number)

    def way(self, call: ModelCall) -> contextlib.AbstractAsyncContextManager[None]:
        """The provider's attention, for as long as the block lasts; a long wait for it is told."""

        async def tell(reason: str) -> None:
            await self._log.append(self._log.event(EventKind.AGENT_PROGRESS, call.lane_id, waiting_for=reason))

        return contextlib.nullcontext() if self._provider_slot is None else self._provider_slot.taken(tell)

    def hold_others(self, error: Exception) -> None:
        """A provider that says when it wants to be asked again says it to every run."""
        told = classify_error(error, now_s=time.time())
        if self._provider_slot is not None and told.code in ("rate_limited", "overloaded") and told.retry_after_s:
            self._provider_slot.hold_off(told.retry_after_s)

    def admit(self, call: ModelCall) -> SameCommit:
        try:
            return self._gate.before(call) if self._gate else SameCommit()
        except Exception as error:
            raise Refusal(error) from error

    def settle(self, call: ModelCall, answer: Any) -> SameCommit:
        return self._gate.after(call, to_usage(answer)) if self._gate else SameCommit()

    async def release(self, call: ModelCall, error: Exception) -> None:
        beside = self._gate.failed(call, error) if self._gate else SameCommit()
        if beside.events or beside.rows:
            # crash: after this the money is free and the call has no outcome yet, so it is simply made again.
            await self._log.append(*beside.events, rows=beside.rows)

    async def ask(self, request: "ModelRequest[Any]", handler: CallModel) -> Any:
        async with asyncio.timeout(self._call_timeout_s):
            answer = handler(request)
            return await answer if inspect.isawaitable(answer) else answer


def _explained(stopped: Stopped, run_id: str, call: ModelCall) -> Stopped:
    """A refusal to replay, with the choices there are."""
    error = stopped.error
    if not isinstance(error, Nondeterminism):
        return stopped
    changed = error.facts.get("changed", [])
    phase = call.lane_id.partition("/")[0]
    fork = f"begin again before the phase: holdfast fork {run_id} {phase}"
    accept = f"Go on with what is new from here: holdfast resume {run_id} --accept-drift. Or {fork}."
    hint = f"What was said before cannot be replayed; {fork}." if "messages" in changed else accept
    return Stopped(Nondeterminism(error.message, hint=hint, changed=changed, key=call.key))


class _OneCall:
    """One call while it is being made; `number` counts its attempts, those of dead processes included."""

    def __init__(
        self,
        steps: ModelSteps,
        call: ModelCall,
        request: "ModelRequest[Any]",
        handler: CallModel,
        attempts: Attempts,
        *,
        number: int,
    ) -> None:
        self._steps = steps
        self._asked = call
        self._request = request
        self._handler = handler
        self._attempts = attempts
        self._number = number
        self._live: LiveText | None = None
        self._way = contextlib.AsyncExitStack()
        self._has_entered = False
        self.details: dict[str, Any] = {"model": call.model}
        """What is told with each intent: the model that is asked this time."""

    @property
    def _call(self) -> ModelCall:
        model = self._attempts.model
        if model is self._request.model:
            return self._asked
        return replace(self._asked, model=priced_name(model), max_output_tokens=output_limit(model))

    def with_intent(self) -> SameCommit:
        self._number += 1
        self.details["model"] = self._call.model
        return self._steps.admit(self._call)

    async def enter(self) -> None:
        """Wait for the provider's attention: before the request is journaled, except where it is tried again."""
        if not self._has_entered:
            await self._way.enter_async_context(self._steps.way(self._asked))
            self._has_entered = True

    async def leave(self) -> None:
        self._has_entered = False
        await self._way.aclose()

    async def effect(self) -> Any:
        await self.enter()
        try:
            return await self._ask()
        finally:
            await self.leave()

    async def _ask(self) -> Any:
        request = self._request
        if self._attempts.model is not request.model:
            request = request.override(model=self._attempts.model)
        try:
            async with self._steps.live_text(self._call, self._number) as live:
                began = time.monotonic()
                response = await self._steps.ask(request, self._handler)
                took_s = round(time.monotonic() - began, 3)
        except Exception as error:
            self._steps.hold_others(error)
            await self._steps.release(self._call, error)
            raise
        self._live = live
        stamped = stamp(response, self._asked.key, request.messages)
        return pack(stamped, usage=to_usage(response), took_s=took_s)

    def with_result(self, answer: Any) -> SameCommit:
        settled = self._steps.settle(self._call, answer)
        told = self._live.last_events() if self._live is not None else []
        return SameCommit([*settled.events, *told], settled.rows)

    def on_failure(self, error: Exception) -> Failure:
        return self._attempts.judge(error)
