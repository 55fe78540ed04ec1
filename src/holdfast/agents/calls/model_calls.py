"""A model call as a durable step: money, attempts, fallbacks, live text and time-outs, all of them journaled.

The order is that of the design: journal → budget → retry → fallback → model. `ModelCallRecorder` serves all calls of a
lane, `ModelCallAttempt` is one of them while it is made.
"""

import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain_core.messages import HumanMessage

from holdfast.agents.calls.attempts import Attempts
from holdfast.agents.calls.conversion import (
    await_if_needed,
    find_refusal,
    pack,
    stamp,
    to_model_call,
    to_usage,
    unpack,
)
from holdfast.agents.calls.fingerprints import Fingerprints, model_name
from holdfast.agents.calls.gate import ModelCall
from holdfast.agents.calls.in_flight import InFlight
from holdfast.agents.calls.lane_keys import LaneKeys
from holdfast.agents.calls.live_text import LiveText
from holdfast.agents.calls.provider_errors import to_failure
from holdfast.agents.calls.services import TurnServices
from holdfast.agents.calls.stall_detector import NUDGE, Advice, StallDetector, Stalled, describe_stall
from holdfast.agents.image_blocks import list_references, with_bytes
from holdfast.agents.sent_requests import SentRequests
from holdfast.errors import (
    ModelRefused,
    Nondeterminism,
    PhaseTimeout,
    ProviderModelNotFound,
    ProviderRequestRefused,
    RowRefused,
)
from holdfast.runtime.events import EventKind
from holdfast.runtime.records import StepState
from holdfast.runtime.run_fold.provider_wait import ProviderWait
from holdfast.runtime.run_log import RunLog
from holdfast.runtime.step import MODEL_CALL, SameCommit, Step, Stopped

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

_NOT_CALLED_NOW = (StepState.COMPLETED, StepState.FAILED, StepState.WAITING)
_ABOUT_IMAGES = "There are images in the request; if its model takes none, say `vision: false` in the persona."
CallModel = Callable[["ModelRequest[Any]"], Awaitable["ModelResponse[Any]"]]


class Refusal(BaseException):
    """A model call was not admitted. Nobody's failure, and therefore not recorded as that of the tool around it."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error

    def to_raise(self, *, is_subagent: bool) -> BaseException:
        """Return what to raise for it: in a subagent itself, so that the tool which runs it does not fail for it."""
        return self if is_subagent else self.error


class ModelCallRecorder:
    """Makes the model calls of one middleware. `fallbacks` stand in for a model that does not answer, in this order."""

    def __init__(
        self,
        log: RunLog,
        keys: LaneKeys,
        in_flight: InFlight,
        detector: StallDetector,
        services: TurnServices,
        accept_drift: frozenset[str],
        sent: SentRequests | None = None,
    ) -> None:
        self._log = log
        self._keys = keys
        self._in_flight = in_flight
        self._detector = detector
        self._services = services
        self._sent = sent
        self._accept_drift = accept_drift - {"messages"}
        self._prints = Fingerprints()
        self.fallbacks: Sequence[BaseChatModel] = ()

    async def call(self, request: "ModelRequest[Any]", handler: CallModel) -> "ModelResponse[Any]":
        """Return the recorded answer of the next model call of the current lane, or make the call and record it."""
        lane_id = self._keys.current_lane()
        key = self._keys.next_model_key(lane_id)
        advice = await self._follow_advice(lane_id, key)
        if advice in (Advice.NUDGE, Advice.FALL_BACK):
            handler = _nudging(handler)
        return await self._record(key, lane_id, request, handler, has_fallen_back=advice is Advice.FALL_BACK)

    async def ask_aside(self, model: "BaseChatModel", prompt: str) -> str:
        """Ask a model something that is not part of the conversation; recorded as every other call."""
        lane_id = self._keys.current_lane()
        key = self._keys.next_aside_key(lane_id)
        request = ModelRequest(model=model, messages=[HumanMessage(prompt)])
        response = await self._record(key, lane_id, request, _ask_alone)
        return response.result[-1].text

    async def _record(
        self, key: str, lane_id: str, request: "ModelRequest[Any]", handler: CallModel, *, has_fallen_back: bool = False
    ) -> "ModelResponse[Any]":
        printed = self._prints.of_request(request, lane_id)
        # Also of a call that is replayed: the next request is told by its difference to this one.
        sent = self._sent.describe(request, lane_id, printed) if self._sent else None
        record = self._log.records.by_key.get(("step", key))
        failure = record.error if record is not None else {}
        models, rules = [request.model, *self.fallbacks], self._services.retries
        attempts = Attempts(models, rules, failure, run_id=self._log.run_id, clock=time.time)
        attempts.skip_to(1 if has_fallen_back else 0)
        attempt = ModelCallAttempt(
            self._log,
            self._services,
            to_model_call(key, lane_id, request, printed),
            request,
            handler,
            attempts,
            self._comparable(key, printed.hashes),
            sent,
        )
        try:
            recorded = await self._in_flight.finish(attempt.run())
        except Refusal as refusal:
            is_subagent = self._keys.is_subagent(lane_id)
            raise refusal.to_raise(is_subagent=is_subagent) from refusal.error.__cause__
        except Exception as error:
            if (explained := to_failure(attempts.last_facts, self._log.run_id)) is None:
                raise
            if printed.images and explained.code in (ProviderRequestRefused.code, ProviderModelNotFound.code):
                explained.hint = f"{_ABOUT_IMAGES} {explained.hint}"
            raise explained from error
        _check_not_refused(recorded, request.model)
        self._detector.note_answer(lane_id, recorded)
        response: ModelResponse[Any] = unpack(recorded, None)
        if self._sent:
            self._sent.note_answer(key, response.result)
        return response

    def _comparable(self, key: str, hashes: Mapping[str, str]) -> dict[str, str]:
        is_recorded = ("step", key) in self._log.records.by_key
        return {name: value for name, value in hashes.items() if not (is_recorded and name in self._accept_drift)}

    async def _follow_advice(self, lane_id: str, key: str) -> Advice:
        """Return the detector's advice for this call. Raises `Stalled` once: who resumes after it has decided."""
        advice, records = self._detector.advise(lane_id), self._log.records.by_key
        if ("step", key) in records:
            return advice
        if not self._keys.is_subagent(lane_id) and self._detector.is_out_of_time(lane_id):
            raise PhaseTimeout("The agent has worked longer than its phase may take.")
        if advice is not Advice.STOP:
            return advice
        diagnosis = self._detector.diagnose(lane_id)
        if ("step", f"{key}/stalled") not in records:
            # crash: without this record the stall is found again; with it, the next process goes on.
            await self._log.step(Step(f"{key}/stalled", lane_id), lambda: diagnosis)
            raise Stalled(describe_stall(diagnosis), **diagnosis)
        self._detector.forgive(lane_id)
        return Advice.NUDGE


class ModelCallAttempt:
    """One model call while it is made: `run` makes it, the other methods are what its step calls on the way.

    A step makes attempts until one succeeds or `Attempts` gives up. For each attempt the journal calls, in this order,
    `_reserve` (with the intent), `_ask` (the call itself), and then `_settle` (with the answer) or `Attempts.judge`
    (with the failure). `_number` counts the attempts, those of dead processes included.
    """

    def __init__(
        self,
        log: RunLog,
        services: TurnServices,
        call: ModelCall,
        request: "ModelRequest[Any]",
        handler: CallModel,
        attempts: Attempts,
        fingerprint: Mapping[str, str],
        sent: Mapping[str, Any] | None = None,
    ) -> None:
        self._log = log
        self._services = services
        self._call = call
        self._request = request
        self._handler = handler
        self._attempts = attempts
        self._fingerprint = fingerprint
        self._record = log.records.by_key.get(("step", call.key))
        self._number = self._record.attempt if self._record is not None else 0
        self._details: dict[str, Any] = {"model": call.model}
        self._sent = sent
        self._live: LiveText | None = None
        self._has_said_wait = False
        """It is the last thing that was said of this call."""
        slot = services.provider_slot
        self._turn: contextlib.AbstractAsyncContextManager[None] = (
            contextlib.nullcontext() if slot is None else slot.reserve(self._report_wait)
        )

    async def run(self) -> Any:
        """Return the recorded answer, or that of the first model that gives one. Raises what the last one raised."""
        is_called_now = self._record is None or self._record.state not in _NOT_CALLED_NOW
        step = Step(
            self._call.key,
            self._call.lane_id,
            has_intent=True,
            fingerprint=self._fingerprint,
            kinds=MODEL_CALL,
            details=self._details,
            with_intent=self._reserve,
            with_result=self._settle,
            on_failure=self._attempts.judge,
        )
        try:
            # A call waits for its provider before the request is journaled, so that no money is reserved meanwhile. A
            # replayed answer waits for nobody, and one that waits for its next attempt must not hold a turn.
            async with self._turn if is_called_now else contextlib.nullcontext():
                return await self._log.step(step, self._ask)
        except RowRefused as error:
            raise Refusal(error) from error
        except Stopped as stopped:
            raise _explained(stopped, self._log.run_id, self._call) from stopped.__cause__

    def _reserve(self) -> SameCommit:
        """Return the money that is written with the intent. Raises `Refusal` where there is none."""
        self._number += 1
        self._has_said_wait = False
        call = self._attempts.to_call(self._call)
        self._details["model"] = call.model
        # With the first attempt of a process; further ones send the same.
        self._details.pop("sent", None)
        if self._sent is not None:
            self._details["sent"], self._sent = self._sent, None
        gate = self._services.gate
        try:
            return gate.before(call) if gate else SameCommit()
        except Exception as error:
            raise Refusal(error) from error

    async def _ask(self) -> Any:
        """Ask the model whose turn it is, once, and return its answer as it is recorded."""
        call, request = self._attempts.to_call(self._call), self._attempts.to_request(self._request)
        request = await self._with_images(request)
        async with self._turn:
            await self._report_turn()
            try:
                deadline = self._services.retries.to_deadline()
                progress = deadline.note_progress
                async with LiveText(self._log, call.key, call.lane_id, self._number, on_progress=progress) as live:
                    began = time.monotonic()
                    response = await deadline.run(await_if_needed(self._handler(request)))
                    took_s = round(time.monotonic() - began, 3)
            except Exception as error:
                self._hold_off_others(error)
                await self._release(call, error)
                raise
        self._live = live
        refused = {} if (refusal := find_refusal(response)) is None else {"refusal": refusal}
        stamped = stamp(response, call.key, request.messages)
        return pack(stamped, usage=to_usage(response), took_s=took_s, **refused)

    async def _with_images(self, request: "ModelRequest[Any]") -> "ModelRequest[Any]":
        read_image = self._services.read_image
        if read_image is None or not list_references(request.messages):
            return request
        return request.override(messages=await with_bytes(request.messages, read_image, model=request.model))

    def _settle(self, answer: Any) -> SameCommit:
        """Return what is written with the answer: its cost, and before it the last of the live text."""
        gate, call = self._services.gate, self._attempts.to_call(self._call)
        cost = gate.after(call, to_usage(answer)) if gate else SameCommit()
        text_events = self._live.last_events() if self._live is not None else []
        return SameCommit(cost.events, cost.rows, earlier=text_events)

    async def _release(self, call: ModelCall, error: Exception) -> None:
        """Free the money of a failed attempt, as far as the gate knows that it cost nothing."""
        gate = self._services.gate
        freed = gate.failed(call, error) if gate else SameCommit()
        if freed.events or freed.rows:
            # crash: after this the money is free and the call has no outcome yet, so it is simply made again.
            await self._log.append(*freed.events, rows=freed.rows)

    def _hold_off_others(self, error: Exception) -> None:
        """Let every run wait for a provider that has had too many calls."""
        slot, hold_s = self._services.provider_slot, self._attempts.find_hold(error)
        if slot is not None and hold_s:
            slot.hold_off(hold_s)

    async def _report_wait(self, wait: ProviderWait) -> None:
        self._has_said_wait = True
        await self._append_progress(**wait.to_payload())

    async def _report_turn(self) -> None:
        """Say that a wait is over where no request follows: that of a further attempt is there already."""
        if self._has_said_wait:
            self._has_said_wait = False
            await self._append_progress(waiting_for=None)

    async def _append_progress(self, **facts: Any) -> None:
        await self._log.append(self._log.event(EventKind.AGENT_PROGRESS, self._call.lane_id, **facts))


def _explained(stopped: Stopped, run_id: str, call: ModelCall) -> Stopped:
    """Add the choices there are to a refusal to replay."""
    error = stopped.error
    if not isinstance(error, Nondeterminism):
        return stopped
    changed = error.facts.get("changed", [])
    phase = call.lane_id.partition("/")[0]
    fork = f"begin again before the phase: holdfast fork {run_id} {phase}"
    accept = f"Go on with what is new from here: holdfast resume {run_id} --accept-drift. Or {fork}."
    hint = f"What was said before cannot be replayed; {fork}." if "messages" in changed else accept
    return Stopped(Nondeterminism(error.message, hint=hint, changed=changed, key=call.key))


def _check_not_refused(recorded: Any, model: Any) -> None:
    """Raise `ModelRefused` for an answer in which the model refuses; it is recorded and paid for as every answer."""
    refusal = recorded.get("refusal") if isinstance(recorded, dict) else None
    if refusal is not None:
        said = f"refused to answer: {refusal}" if refusal else "was stopped by its provider's content filter"
        raise ModelRefused(f"{model_name(model)} {said}".rstrip(".") + ".", words=refusal)


def _nudging(handler: CallModel) -> CallModel:
    """Add the nudge behind the messages, outside the recorded request: when it comes may change between versions."""

    async def nudge(request: "ModelRequest[Any]") -> "ModelResponse[Any]":
        return await handler(request.override(messages=[*request.messages, HumanMessage(NUDGE)]))

    return nudge


async def _ask_alone(request: "ModelRequest[Any]") -> "ModelResponse[Any]":
    return ModelResponse(result=[await request.model.ainvoke(request.messages)])
