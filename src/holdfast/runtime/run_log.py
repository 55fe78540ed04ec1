"""The one primitive: `RunLog.step`. Journaled result → replayed; intent without result → unknown, a policy decides;
else intent (where the policy needs one) → call → result.

A `RunLog` is what the owner of a run has of its journal, and the only way to add to it.
"""

import contextlib
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from types import CoroutineType
from typing import Any, ClassVar, Literal

from holdfast.errors import (
    HoldfastError,
    Nondeterminism,
    PayloadInvalid,
    RowRefused,
    RunAlreadyTerminal,
    SequenceConflict,
)
from holdfast.runtime.checkpoint.base import Append, Claim, Prepared, Statement, prepare
from holdfast.runtime.clock import now, sleep_until
from holdfast.runtime.deferred import DeferredEvents
from holdfast.runtime.events import Event, EventKind, create_event
from holdfast.runtime.head_tracker import HeadTracker
from holdfast.runtime.journal import Journal
from holdfast.runtime.outcomes.call_outcome import encode_result, judge, to_raise
from holdfast.runtime.outcomes.failures import rebuild_error
from holdfast.runtime.outcomes.invocation import CallGate, invoke
from holdfast.runtime.outcomes.resolution import resolve
from holdfast.runtime.outcomes.step_result import prepare_result
from holdfast.runtime.records import Record, Records, RecordType, StepState, check_fingerprint, describe
from holdfast.runtime.step import (
    CancelRun,
    Drained,
    Interrupted,
    PauseRun,
    RowSource,
    SameCommit,
    Step,
    Stopped,
    current_step,
)

Moment = Literal["before", "after", "recorded"]
"""Of a step: before its call, after it, and once what became of it is recorded."""
_NOTHING_BESIDE = SameCommit()
FOR_THE_OWNER = (
    EventKind.RUN_CANCEL_REQUESTED,
    EventKind.RUN_PAUSE_REQUESTED,
    EventKind.HUMAN_APPROVAL_RECEIVED,
    EventKind.EVENT_RECEIVED,
)


class RunLog:
    """A run as its owner sees it: what is recorded, and the only way to add to it."""

    probe: ClassVar[Callable[["RunLog", str, Moment], None] | None] = None
    """For tests: told of each step that comes to one of these moments."""

    def __init__(self, journal: Journal, claim: Claim, records: Records) -> None:
        self.run_id = claim.run_id
        self.records = records
        self._journal = journal
        self.claim = claim
        self._tracker = HeadTracker(max(claim.head, records.last_seq))
        self._in_flight = 0
        self._deferred = DeferredEvents(self.flush_deferred)
        self._stopped: Stopped | None = None
        self.row_source: RowSource | None = None
        self.holds = {(one.type, one.key) for one in (*records.open_scopes(), *records.open_children())}
        """What must be undone or cancelled by the flow's own code before the run is: a request ends no append then."""
        self._calls_in_flight = 0
        self._gate = CallGate()
        self._is_drained = False

    @property
    def is_cancel_held(self) -> bool:
        return bool(self.holds)

    def begin_call(self) -> None:
        """Do nothing: a replay that must not call anything stops here."""

    def defer(self, event: Event) -> None:
        """Write an event with whatever is appended next, or in a moment. Raises `PayloadInvalid`, `Stopped`."""
        if self._stopped is not None:
            raise self._stopped
        self._deferred.add(event)

    @property
    def head(self) -> int:
        """The number up to which all of the journal is known here."""
        return self._tracker.head

    @property
    def has_call_in_flight(self) -> bool:
        return self._calls_in_flight > 0

    def drain(self) -> None:
        """Begin no more calls: the next one raises `Drained`. Those in flight go on and are recorded."""
        self._is_drained = True

    async def append(self, *events: Event | Prepared, rows: Sequence[Statement] = (), is_last: bool = False) -> None:
        """Append as owner. If that fails, this log takes nothing more: `Stopped` now and at every later call.

        Raises `CancelRun`, with the events written, if a person has asked for it meanwhile; not with `is_last`, for
        what ends or pauses the run: a request that comes beside that changes nothing any more.
        """
        if self._stopped is not None:
            raise self._stopped
        more = await self._make_rows(events) if self.row_source is not None else ()
        self._in_flight += 1
        # Deferred events go first and in the same append, so that the order in the journal is the order in which things
        # happened here. If the append is refused, they go back and wait for the next one.
        deferred = self._deferred.take()
        try:
            if deferred or more or len(events) != 1 or type(events[0]) is not Prepared:
                append = self._encode(deferred, events, [*rows, *more])
            else:  # as most are
                append = Append(self.run_id, events, self.claim.epoch, rows)  # type: ignore[arg-type]
            # Where nothing else is waiting, the commit is made right here on the loop; otherwise it joins the next
            # batch.
            numbers = self._journal.write_now(append)
            if numbers is None:
                numbers = await self._journal.write_soon(append)
        except (PayloadInvalid, RowRefused, SequenceConflict):
            self._deferred.restore(deferred)
            raise  # nothing was written, and the caller can do something else
        except Exception as error:
            self._stopped = Stopped(error)
            raise self._stopped from error
        finally:
            self._in_flight -= 1
        self._tracker.note_own(numbers)
        if more and self.row_source is not None:
            self.row_source.note_written(more)
        # A gap in our own numbers, or a head beyond ours, means that someone else has written: an answer, or a request
        # to cancel. Reading waits until none of our own appends is under way, since their numbers would look like a gap
        # too.
        if not self._in_flight and (self._tracker.has_gap or self.is_behind()):
            await self.catch_up()
        if self.records.cancel_request is not None and not (is_last or self.holds):
            self.raise_if_cancelled()

    async def append_end(self, event: Event, *, rows: Sequence[Statement] = (), yields_to_pause: bool = False) -> None:
        """Append the event that ends the run; this log takes nothing more after it.

        A request that was written before it wins: raises `CancelRun`, or `PauseRun` with `yields_to_pause`, with
        nothing written. The event has a number, so the store itself refuses it if anything came in between.
        """
        while True:
            await self.flush_deferred()
            await self.catch_up()
            self.raise_if_cancelled()
            if yields_to_pause and self.records.pause_request is not None:
                raise PauseRun
            try:
                await self.append(replace(event, seq=self._tracker.head + 1), rows=rows, is_last=True)
            except SequenceConflict:
                continue  # someone wrote meanwhile: look what it was
            self.stop(RunAlreadyTerminal(f"Run {self.run_id!r} is over.", run_id=self.run_id))
            return

    async def _make_rows(self, events: Sequence[Event | Prepared]) -> Sequence[Statement]:
        assert self.row_source is not None
        try:
            return await self.row_source.make_rows(
                [event.event if isinstance(event, Prepared) else event for event in events]
            )
        except HoldfastError as error:
            self._stopped = Stopped(error)
            raise self._stopped from error

    def _encode(
        self, deferred: list[Prepared], events: Sequence[Event | Prepared], rows: Sequence[Statement]
    ) -> Append:
        ready = [event if isinstance(event, Prepared) else prepare(event) for event in events]
        return Append(self.run_id, [*deferred, *ready], self.claim.epoch, rows)

    def raise_if_cancelled(self) -> None:
        """Raise `CancelRun` if a person has asked for it, as far as the journal was read."""
        request = self.records.cancel_request
        if request is not None:
            raise CancelRun(request.get("reason", ""), request.get("by", ""))

    async def flush_deferred(self) -> None:
        """Write the deferred events, if any. If that fails, the next append raises it."""
        with contextlib.suppress(Interrupted):
            if self._deferred:
                await self.append(is_last=True)

    def stop(self, error: BaseException) -> None:
        """Take nothing more from now on."""
        self._stopped = self._stopped or Stopped(error)

    def has_news(self, head: int) -> bool:
        """Return true if a journal that ends at `head` holds something of another writer's."""
        return not self._in_flight and head > self._tracker.head

    def is_behind(self) -> bool:
        """Return true if the journal is known to hold more than was read here, be it an own append under way."""
        return self._journal.known_head(self.run_id) > self._tracker.head

    async def catch_up(self) -> None:
        """Read what others have appended: answers, and requests to cancel or to pause."""
        for event in await self._journal.read(self.run_id, self._tracker.head):
            if event.kind in FOR_THE_OWNER:
                self.records.add(event)
            self._tracker.note_read(event.seq)

    async def read(self, kind: str) -> list[Event]:
        """Read the events of one kind that the journal holds now."""
        return [event for event in await self._journal.read(self.run_id) if event.kind == kind]

    def event(self, kind: str, lane_id: str = "main", **payload: Any) -> Event:
        return create_event(self.run_id, kind, lane_id, **payload)

    # -- the durable step ---------------------------------------------------------------------------------------------

    async def step(self, step: Step, call: Callable[[], Any]) -> Any:
        """Return the recorded result of a step, or make its call and record it. Raises what the call raises."""
        record = self.find("step", step.key, step.fingerprint)
        # What is recorded decides, in this order: a result or a final failure is replayed; a call of unknown outcome is
        # settled by its policy; a failed attempt waits for the rest of its pause; what is left is to be called.
        if record is not None:
            if record.state is StepState.COMPLETED:
                return self._replay(step, record)
            if record.state is StepState.FAILED:
                raise rebuild_error(step.key, record.error)
            if record.state is StepState.STARTED and await resolve(self, step, record):
                return self._replay(step, record)
            if record.state is StepState.WAITING:
                await sleep_until(record.retry_at, at_most_s=record.retry_in_s)
                return await self.attempt(step, call, record.attempt + 1)
            if record.state is StepState.STARTED:
                return await self.attempt(step, call, record.attempt)
        return await self.attempt(step, call, 1)

    @staticmethod
    def _replay(step: Step, record: Record) -> Any:
        if step.codec is None:
            return record.result
        try:
            return step.codec.decode(record.result, record.result_type, describe("step", step.key))
        except Nondeterminism as error:
            raise Stopped(error) from error

    def find(self, record_type: RecordType, key: str, fingerprint: Mapping[str, str]) -> Record | None:
        """Find what is recorded under a key. Raises `Stopped` if it was recorded for something else."""
        record = self.records.by_key.get((record_type, key))
        if record is None or record.is_skipped:
            return None
        if not (fingerprint and record.fingerprint):
            return record
        try:
            check_fingerprint(describe(record_type, key), record.fingerprint, fingerprint)
        except Nondeterminism as error:
            # After a retry or an answer the code may take another way, and meet other arguments under the same key.
            if record.can_be_skipped:
                return None  # what it depends on has come out otherwise this time
            raise Stopped(error) from error
        return record

    async def attempt(self, step: Step, call: Callable[[], Any], attempt: int = 1) -> Any:
        """Make the call of a step, of which nothing more is recorded than the attempts before this one."""
        writes_intent, probe = step.writes_intent, RunLog.probe
        while True:
            if self._is_drained:
                raise Drained(step.key)
            if not self._journal.may_begin:
                await self._wait_until_held()
            if writes_intent:
                beside = step.with_intent() if step.with_intent else _NOTHING_BESIDE
                intent = self.step_event(step, step.kinds.started, attempt, **step.details)
                await self.append(intent, *beside.events, rows=beside.rows)
            # crash: with an intent, the outcome is unknown from here on and the policy decides; without one the step
            # has never been, and runs again.
            if probe is not None:
                probe(self, step.key, "before")
            try:
                try:
                    token = current_step.set((self.run_id, step.key))
                    self._calls_in_flight += 1
                    try:
                        if step.in_thread or step.timeout_s is not None:
                            result = await self._invoke(step, call)
                        else:
                            result = call()
                            if type(result) is CoroutineType or inspect.isawaitable(result):
                                result = await result
                    finally:
                        self._calls_in_flight -= 1
                        current_step.reset(token)
                    data, type_name, result = encode_result(step, result)
                except Exception as error:
                    if probe is not None:
                        probe(self, step.key, "after")
                    pause_s = await self._record_failure(step, attempt, error)
                else:
                    if probe is not None:
                        probe(self, step.key, "after")
                    details = {} if writes_intent else step.details
                    if details or step.with_result is not None or step.is_acked_late:
                        await self._record_result(step, attempt, result, data=data, type_name=type_name)
                    else:  # as most are
                        await self.append(prepare_result(self.run_id, step, attempt, data, type_name))
                    if probe is not None:
                        probe(self, step.key, "recorded")
                    return result
            finally:
                if step.in_thread:
                    self._gate.settle(step.key)
            # crash: whoever goes on waits for the rest of the time, then makes the next attempt.
            await sleep_until(now() + pause_s, at_most_s=pause_s)
            attempt += 1

    async def _wait_until_held(self) -> None:
        """Begin nothing while this process may have lost the run: its next owner would make the same call."""
        try:
            await self._journal.wait_until_held(self.claim)
        except HoldfastError as error:
            self.stop(error)
            raise Stopped(error) from error

    def _invoke(self, step: Step, call: Callable[[], Any]) -> Awaitable[Any]:
        return invoke(call, key=step.key, in_thread=step.in_thread, timeout_s=step.timeout_s, gate=self._gate)

    async def _record_result(self, step: Step, attempt: int, result: Any, *, data: Any, type_name: str | None) -> None:
        details = {} if step.writes_intent else step.details
        beside = step.with_result(result) if step.with_result else _NOTHING_BESIDE
        done = self.step_event(step, step.kinds.completed, attempt, result=data, **details)
        if type_name is not None:
            done.payload["result_type"] = type_name
        if step.is_acked_late and not beside.rows:
            # crash: until the next append the call was never made
            self._deferred.add(*beside.earlier, done, *beside.events)
        else:
            await self.append(*beside.earlier, done, *beside.events, rows=beside.rows)

    async def _record_failure(self, step: Step, attempt: int, error: Exception) -> float:
        """Record a failed attempt; returns after how many seconds the next one is due, raises if there is none."""
        failure = judge(step, attempt, error)
        retry = {} if failure.retry_in_s is None else {"retry_at": now() + failure.retry_in_s}
        await self.append(self.step_event(step, step.kinds.failed, attempt, error=dict(failure.error), **retry))
        if failure.pause is not None:
            raise failure.pause from error
        if failure.retry_in_s is not None:
            return failure.retry_in_s
        raised = to_raise(step, error, failure)
        raise raised  # its cause is part of what is recorded

    def step_event(self, step: Step, kind: str, attempt: int, **payload: Any) -> Event:
        """Make an event of a step, with its key and what tells its arguments apart."""
        if attempt > 1:
            payload["attempt"] = attempt
        if step.fingerprint:
            payload["fingerprint"] = dict(step.fingerprint)
        return create_event(self.run_id, kind, step.lane_id, key=step.key, **payload)
