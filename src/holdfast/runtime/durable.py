"""The one primitive: a durable step. Journaled result → replayed; intent without result → unknown, a policy decides;
else intent (where the policy needs one) → call → result.

Rule: whatever leaves a step as `Interrupted` must not be swallowed by user code, for nothing may be recorded after it.
It is therefore no `Exception`.
"""

import asyncio
import contextlib
import inspect
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import CoroutineType
from typing import Any

from holdfast.enums import PauseReason
from holdfast.errors import Nondeterminism, PayloadInvalid, RowRefused, RunPaused, StepFailed
from holdfast.runtime.checkpoint.base import Append, Claim, Prepared, Statement, prepare
from holdfast.runtime.deferred import DeferredEvents
from holdfast.runtime.events import Event, EventKind, create_event
from holdfast.runtime.failures import describe_error, rebuild_error
from holdfast.runtime.journal import Journal
from holdfast.runtime.jsondata import to_json
from holdfast.runtime.records import Record, Records, RecordType, StepState, check_fingerprint, describe
from holdfast.runtime.unknown_outcomes import Done, GivenUp, NotDone, Unclear, from_answer, from_policy, unknown_error
from holdfast.runtime.unknown_outcomes import OnUnknown as OnUnknown  # for those who make steps

_current_step: ContextVar[tuple[str, str]] = ContextVar("holdfast_step")  # run and key
_MAX_BACKOFF_S = 60.0
_MAX_NAP_S = 30.0  # a long wait looks at the clock this often, since clocks jump


@dataclass(frozen=True)
class StepKinds:
    """The events a step writes: its intent, its result, its failure, its doubt."""

    started: str = EventKind.STEP_STARTED
    completed: str = EventKind.STEP_COMPLETED
    failed: str = EventKind.STEP_FAILED
    unknown: str = EventKind.STEP_UNKNOWN


MODEL_CALL = StepKinds(EventKind.MODEL_REQUEST, EventKind.MODEL_RESPONSE, EventKind.MODEL_ERROR, EventKind.TOOL_UNKNOWN)
TOOL_CALL = StepKinds(EventKind.TOOL_STARTED, EventKind.TOOL_RESULT, EventKind.TOOL_ERROR, EventKind.TOOL_UNKNOWN)


@dataclass(frozen=True)
class SameCommit:
    """What is written together with an intent or a result."""

    events: Sequence[Event] = ()
    rows: Sequence[Statement] = ()


_NOTHING_BESIDE = SameCommit()


@dataclass(frozen=True)
class Failure:
    """What is recorded of a failed call, and in how many seconds it is made again; `None` means that it is not."""

    told: Mapping[str, Any]
    retry_in_s: float | None = None


@dataclass(slots=True)  # not frozen: that makes one three times as slowly, and each step of a flow makes one
class Step:
    """A call to be made once. `key` is unique in its run; `fingerprint` tells whether a replay asks for the same."""

    key: str
    lane_id: str = "main"
    on_unknown: OnUnknown = "rerun"
    has_intent: bool = False
    """Write the intent first even if an unknown outcome is simply run again, as model calls do for the money."""
    retries: int = 0
    backoff_s: float = 0.2
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    kinds: StepKinds = StepKinds()
    details: Mapping[str, Any] = field(default_factory=dict)
    """Facts for readers, written with the intent, or with the result where there is none."""
    with_intent: Callable[[], "SameCommit"] | None = None
    with_result: Callable[[Any], "SameCommit"] | None = None
    """Events and row changes that belong into the same transaction: money reserved, money settled."""
    is_acked_late: bool = False
    """Its result is written with what the run appends next: for a call that may be made again, and on whose result
    nobody acts before that append."""
    on_failure: Callable[[Exception], Failure] | None = None
    """Judges a failure instead of `retries`; what it tells is what a later process finds as the record's `error`."""

    @property
    def writes_intent(self) -> bool:
        return self.has_intent or self.on_unknown != "rerun"


class Interrupted(BaseException):
    """The flow cannot go on in this process; what the journal holds is all that counts."""


class Suspended(Interrupted):
    """A person must answer first; `reason` says what: if no kind of its own does, what became of a call."""

    reason = PauseReason.OUTCOME

    def events(self, run_id: str) -> list[Event]:
        """Return the events that explain the pause, to be written with it."""
        return []


class Stopped(Interrupted):
    """The journal cannot be written, or the run no longer is ours, or it is not the run it was: `error` says which."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class CancelRun(Interrupted):
    """A person ended the run."""

    def __init__(self, reason: str, by: str) -> None:
        super().__init__(reason)
        self.reason, self.by = reason, by


def idempotency_key(run_id: str, key: str) -> str:
    """Unique over all runs: the first colon ends the run's part."""
    return f"{run_id.replace('%', '%25').replace(':', '%3A')}:{key}"


def step_key() -> str:
    """The idempotency key of the step that runs now: the same on every try, in every process. Give it to services."""
    try:
        return idempotency_key(*_current_step.get())
    except LookupError:
        raise StepFailed("step_key() is only known inside a step.", hint="Call it in the function of a step.") from None


_FOR_THE_OWNER = (
    EventKind.RUN_CANCEL_REQUESTED,
    EventKind.RUN_PAUSE_REQUESTED,
    EventKind.HUMAN_APPROVAL_RECEIVED,
)


class RunLog:
    """A run as its owner sees it: what is recorded, and the only way to add to it."""

    def __init__(self, journal: Journal, claim: Claim, records: Records) -> None:
        self.run_id = claim.run_id
        self.records = records
        self._journal = journal
        self._claim = claim
        self._head = max(claim.head, records.last_seq)
        self._own: set[int] = set()
        """Our own numbers beyond `_head`: a gap between the two is another writer's, or still under way."""
        self._in_flight = 0
        self._owed = DeferredEvents(self.pay)
        self._stopped: Stopped | None = None

    async def append(self, *events: Event | Prepared, rows: Sequence[Statement] = (), is_last: bool = False) -> None:
        """Append as owner. If that fails, this log takes nothing more: `Stopped` now and at every later call.

        Raises `CancelRun`, with the events written, if a person has asked for it meanwhile; not with `is_last`, for
        what ends or pauses the run: a request that comes beside that changes nothing any more.
        """
        if self._stopped is not None:
            raise self._stopped
        self._in_flight += 1
        owed = self._owed.take()
        try:
            ready = [event if type(event) is Prepared else prepare(event) for event in events]  # type: ignore[arg-type]
            append = Append(self.run_id, [*owed, *ready] if owed else ready, self._claim.epoch, rows)
            numbers = self._journal.write_now(append)
            if numbers is None:
                numbers = await self._journal.write_soon(append)
        except (PayloadInvalid, RowRefused):
            self._owed.give_back(owed)
            raise  # nothing was written, and the caller can do something else
        except Exception as error:
            self._stopped = Stopped(error)
            raise self._stopped from error
        finally:
            self._in_flight -= 1
        self._note_own(numbers)
        if (self._own or self.has_news(self._journal.known_head(self.run_id))) and not self._in_flight:
            await self.catch_up()
        request = self.records.cancel_request
        if request is not None and not is_last:
            raise CancelRun(request.get("reason", ""), request.get("by", ""))

    async def pay(self) -> None:
        """Write what is acknowledged late, if anything; whoever cannot is told so by the next append."""
        with contextlib.suppress(Interrupted):
            if self._owed:
                await self.append(is_last=True)

    def stop(self, error: BaseException) -> None:
        """Take nothing more from now on."""
        self._stopped = self._stopped or Stopped(error)

    def _note_own(self, numbers: Sequence[int]) -> None:
        if not self._own and numbers and numbers[0] == self._head + 1:
            self._head = numbers[-1]  # the usual case: nobody else writes
            return
        self._own.update(number for number in numbers if number > self._head)
        while self._head + 1 in self._own:
            self._head += 1
            self._own.remove(self._head)

    def has_news(self, head: int) -> bool:
        """Whether a journal that ends at `head` holds something of another writer's."""
        return head > self._head and not self._in_flight

    async def catch_up(self) -> None:
        """Read what others have appended: answers, and requests to cancel or to pause."""
        for event in await self._journal.read(self.run_id, self._head):
            if event.kind in _FOR_THE_OWNER:
                self.records.add(event)
            self._head = max(self._head, event.seq)
        self._own = {seq for seq in self._own if seq > self._head}

    async def read(self, kind: str) -> list[Event]:
        """The events of one kind that the journal holds now."""
        return [event for event in await self._journal.read(self.run_id) if event.kind == kind]

    def event(self, kind: str, lane_id: str = "main", **payload: Any) -> Event:
        return create_event(self.run_id, kind, lane_id, **payload)

    # -- the durable step ---------------------------------------------------------------------------------------------

    async def step(self, step: Step, call: Callable[[], Any]) -> Any:
        """Return the recorded result of a step, or make its call and record it. Raises what the call raises."""
        record = self.find("step", step.key, step.fingerprint)
        if record is not None:
            if record.state is StepState.COMPLETED:
                return record.result
            if record.state is StepState.FAILED:
                raise rebuild_error(step.key, record.error)
            if record.state is StepState.STARTED and await self._resolve(step, record):
                return record.result
            if record.state is StepState.WAITING:
                await sleep_until(record.retry_at)
                return await self._attempt(step, call, record.attempt + 1)
            if record.state is StepState.STARTED:
                return await self._attempt(step, call, record.attempt)
        return await self._attempt(step, call, 1)

    def find(self, record_type: RecordType, key: str, fingerprint: Mapping[str, str]) -> Record | None:
        """What is recorded under a key. Raises `Stopped` if it was recorded for something else."""
        record = self.records.by_key.get((record_type, key))
        if record is None or record.is_skipped:
            return None
        if not (fingerprint and record.fingerprint):
            return record
        try:
            check_fingerprint(describe(record_type, key), record.fingerprint, fingerprint)
        except Nondeterminism as error:
            if record.may_be_skipped:
                return None  # what it depends on has come out otherwise this time
            raise Stopped(error) from error
        return record

    async def _attempt(self, step: Step, call: Callable[[], Any], attempt: int) -> Any:
        writes_intent = step.writes_intent
        while True:
            if writes_intent:
                beside = step.with_intent() if step.with_intent else _NOTHING_BESIDE
                intent = self._step_event(step, step.kinds.started, attempt, **step.details)
                await self.append(intent, *beside.events, rows=beside.rows)
            # crash: with an intent, the outcome is unknown from here on and the policy decides; without one the step
            # has never been, and runs again.
            try:
                result = await self._call(step, call)
            except Exception as error:
                failure = self._judge(step, attempt, error)
                await self._record_failure(step, attempt, error, failure)
                # crash: whoever goes on waits for the rest of the time, then makes the next attempt.
                if failure.retry_in_s is None:
                    raise
                await asyncio.sleep(failure.retry_in_s)
                attempt += 1
                continue
            details = {} if writes_intent else step.details
            beside = step.with_result(result) if step.with_result else _NOTHING_BESIDE
            done = self._step_event(step, step.kinds.completed, attempt, result=result, **details)
            if step.is_acked_late and not beside.rows:
                self._owed.add(done, *beside.events)  # crash: until the next append the call was never made
            elif details or step.fingerprint:
                await self.append(done, *beside.events, rows=beside.rows)
            else:  # all of it is what `_call` made, and most steps are like this
                await self.append(prepare(done, is_plain=True), *beside.events, rows=beside.rows)
            return result

    async def _call(self, step: Step, call: Callable[[], Any]) -> Any:
        token = _current_step.set((self.run_id, step.key))
        try:
            result = call()
            if type(result) is CoroutineType or inspect.isawaitable(result):
                result = await result
        finally:
            _current_step.reset(token)
        return to_json(result, f"the result of step {step.key!r}")[1]  # what a replay would return

    def _judge(self, step: Step, attempt: int, error: Exception) -> Failure:
        if step.on_failure is not None:
            return step.on_failure(error)
        return Failure(describe_error(error), self._retry_in(step, attempt, error))

    @staticmethod
    def _retry_in(step: Step, attempt: int, error: Exception) -> float | None:
        if attempt > step.retries or isinstance(error, PayloadInvalid | Nondeterminism | RunPaused):
            return None
        return float(min(step.backoff_s * 2 ** (attempt - 1), _MAX_BACKOFF_S) * random.uniform(0.8, 1.2))  # noqa: S311

    async def _record_failure(self, step: Step, attempt: int, error: Exception, failure: Failure) -> None:
        retry = {} if failure.retry_in_s is None else {"retry_at": time.time() + failure.retry_in_s}
        await self.append(self._step_event(step, step.kinds.failed, attempt, error=dict(failure.told), **retry))
        if failure.retry_in_s is None:
            with contextlib.suppress(AttributeError):
                error.__holdfast_step__ = step.key  # type: ignore[attr-defined]  # found again by `failed_steps`

    def _step_event(self, step: Step, kind: str, attempt: int, **payload: Any) -> Event:
        if attempt > 1:
            payload["attempt"] = attempt
        if step.fingerprint:
            payload["fingerprint"] = dict(step.fingerprint)
        return create_event(self.run_id, kind, step.lane_id, key=step.key, **payload)

    # -- unknown outcomes ---------------------------------------------------------------------------------------------

    async def _resolve(self, step: Step, record: Record) -> bool:
        """Settle a step that was in flight when its process died. True: it is done. False: it may be called again."""
        outcome: Done | NotDone | Unclear | GivenUp | None
        if record.answer is not None:
            outcome = from_answer(record.answer)
        else:
            outcome = await from_policy(step.on_unknown, idempotency_key(self.run_id, step.key))
        match outcome:
            case Done(result):
                resolved = "reconciled" if record.answer is None else "answered"
                await self._complete(step, record, result, resolved=resolved)
                return True
            case NotDone(resolution):
                await self.append(self.event(step.kinds.unknown, step.lane_id, key=step.key, resolution=resolution))
                return False
            case Unclear():
                await self._ask(step, record)
                raise Suspended(step.key)
            case GivenUp(reason, by):
                raise CancelRun(reason, by)
        raise unknown_error(self.run_id, step.key)

    async def _ask(self, step: Step, record: Record) -> None:
        if record.is_asked:
            return
        show = {"question": "This step was in flight when its process died. Run it again?", **step.details}
        await self.append(
            self.event(step.kinds.unknown, step.lane_id, key=step.key, resolution="ask"),
            self.event(EventKind.HUMAN_APPROVAL_REQUESTED, step.lane_id, key=step.key, about="outcome", show=show),
        )
        record.is_asked = True

    async def _complete(self, step: Step, record: Record, result: Any, *, resolved: str) -> None:
        result = to_json(result, f"the result of step {step.key!r}")[1]
        await self.append(
            self._step_event(step, step.kinds.completed, record.attempt or 1, result=result, resolved=resolved)
        )
        record.state, record.result = StepState.COMPLETED, result


async def sleep_until(epoch_s: float, *, at_most_s: float = math.inf) -> None:
    """Wait for a moment of the wall clock; if that is set back meanwhile, no longer than was ever meant."""
    latest = time.monotonic() + at_most_s
    while (left_s := min(epoch_s - time.time(), latest - time.monotonic())) > 0:  # noqa: ASYNC110 - waits for a time
        await asyncio.sleep(min(left_s, _MAX_NAP_S))
