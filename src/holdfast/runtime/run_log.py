"""The one primitive: `RunLog.step`. Journaled result → replayed; intent without result → unknown, a policy decides;
else intent (where the policy needs one) → call → result.

A `RunLog` is what the owner of a run has of its journal, and the only way to add to it.
"""

import contextlib
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
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
from holdfast.runtime.outcomes.step_result import MIN_TOOK_S, prepare_result
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
from holdfast.runtime.stores import read_events

Moment = Literal["before", "after", "recorded"]
"""Of a step: before its call, after it, and once what became of it is recorded."""
_NOTHING_BESIDE = SameCommit()
_PLAIN = frozenset({dict, list, str, int, float, bool, type(None)})  # nothing to await, seen at one look
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
        self._deferred = DeferredEvents()
        self._stopped: Stopped | None = None
        self.row_source: RowSource | None = None
        self.holds = {(one.type, one.key) for one in (*records.open_scopes(), *records.open_children())}
        """What must be undone or cancelled by the flow's own code before the run is: a request ends no append then."""
        self.interrupts = 0
        """How many requests to cancel have interrupted the owner's task."""
        self.is_shut_down = False
        """The task was cancelled by no request: the process is to end, and another one goes on with the run."""
        self.on_request: Callable[[], None] | None = None
        """Called when something that others wrote for the owner was read, by whichever append."""
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
        self._deferred.add(event, flush=self.flush_deferred)

    @property
    def head(self) -> int:
        """The number up to which all of the journal is known here."""
        return self._tracker.head

    @property
    def has_call_in_flight(self) -> bool:
        """A call is under way, announced or not recorded yet."""
        return self._calls_in_flight > 0

    def drain(self) -> None:
        """Begin no more calls: the next one raises `Drained`. Those in flight go on and are recorded."""
        self._is_drained = True

    async def append(
        self, *events: Event | Prepared, rows: Sequence[Statement] = (), is_last: bool = False, gives_up: bool = False
    ) -> None:
        """Append as owner. If that fails, this log takes nothing more: `Stopped` now and at every later call.

        Raises `CancelRun`, with the events written, if a person has asked for it meanwhile; not with `is_last`, for
        what ends or pauses the run: a request that comes beside that changes nothing any more. With `gives_up` the run
        has no owner from then on, and the claim is only to be released.
        """
        if self._stopped is not None:
            raise self._stopped
        more = await self._make_rows(events) if self.row_source is not None else ()
        self._in_flight += 1
        # Deferred events go first and in the same append, so that the order in the journal is the order in which things
        # happened here. If the append is refused, they go back and wait for the next one.
        deferred = self._deferred.take()
        try:
            # Where nothing else is waiting, the commit is made right here on the loop; else it joins the next batch.
            numbers = self._journal.write(self._encode(deferred, events, [*rows, *more], gives_up))
            if not isinstance(numbers, list):
                numbers = await numbers
        except (PayloadInvalid, RowRefused, SequenceConflict):
            self._deferred.restore(deferred)
            raise  # nothing was written, and the caller can do something else
        except Exception as error:
            raise self._to_stopped(error) from error
        finally:
            self._in_flight -= 1
        if more and self.row_source is not None:
            self.row_source.note_written(more)
        if self._note_written(numbers):
            await self.catch_up()
        if self.records.cancel_request is not None and not (is_last or self.holds):
            self.raise_if_cancelled()

    def _to_stopped(self, error: Exception) -> Stopped:
        self._stopped = Stopped(error)
        return self._stopped

    def _note_written(self, numbers: Sequence[int]) -> bool:
        """Note the numbers of an own append; returns true if the journal is to be read, for others have written too."""
        # A gap in our own numbers, or a head beyond ours, means that someone else has written: an answer, or a request
        # to cancel. Reading waits until none of our own appends is under way, since their numbers would look like a gap
        # too.
        head = self._tracker.note_own(numbers)
        return not self._in_flight and (head == 0 or self._journal.heads.get(self.run_id, 0) > head)

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
            raise self._to_stopped(error) from error

    def _encode(
        self, deferred: list[Prepared], events: Sequence[Event | Prepared], rows: Sequence[Statement], gives_up: bool
    ) -> Append:
        ready = [event if isinstance(event, Prepared) else prepare(event) for event in events]
        return Append(self.run_id, [*deferred, *ready], self.claim.epoch, rows, gives_up)

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
        return self._journal.heads.get(self.run_id, 0) > self._tracker.head

    async def catch_up(self) -> None:
        """Read what others have appended: answers, and requests to cancel or to pause."""
        for event in await read_events(self._journal, self.run_id, self._tracker.head):
            if event.seq <= self._tracker.head:
                continue  # read twice, by a look and by an append at the same time
            if event.kind in FOR_THE_OWNER:
                self.records.add(event)
                if self.on_request is not None:
                    self.on_request()
            self._tracker.note_read(event.seq)

    async def read(self, kind: str) -> list[Event]:
        """Read the events of one kind that the journal holds now."""
        return [event for event in await read_events(self._journal, self.run_id) if event.kind == kind]

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

    async def attempt(self, step: Step, call: Callable[..., Any], attempt: int = 1, args: tuple[Any, ...] = ()) -> Any:
        """Make the call of a step, of which nothing more is recorded than the attempts before this one."""
        writes_intent, probe, journal = step.has_intent or step.on_unknown != "rerun", RunLog.probe, self._journal
        while True:
            if self._is_drained:
                raise Drained(step.key)
            if journal.has_leases and not journal.may_begin:
                await self._wait_until_held()
            self._calls_in_flight += 1
            try:
                if writes_intent:
                    beside = step.with_intent() if step.with_intent else _NOTHING_BESIDE
                    intent = self.step_event(step, step.kinds.started, attempt, **step.details)
                    await self.append(intent, *beside.events, rows=beside.rows)
                # crash: with an intent, the outcome is unknown from here on and the policy decides; without one the
                # step has never been, and runs again.
                if probe is not None:
                    probe(self, step.key, "before")
                began_at = time.time()
                try:
                    token = current_step.set((self.run_id, step.key))
                    try:
                        if step.in_thread or step.timeout_s is not None:
                            result = await self._invoke(step, partial(call, *args) if args else call)
                        else:
                            result = call(*args)
                            kind = type(result)
                            if kind is CoroutineType or (kind not in _PLAIN and inspect.isawaitable(result)):
                                result = await result
                    finally:
                        current_step.reset(token)
                    data, type_name, result = encode_result(step, result)
                except Exception as error:
                    if probe is not None:
                        probe(self, step.key, "after")
                    pause_s = await self._record_failure(step, attempt, error, began_at)
                else:
                    if probe is not None:
                        probe(self, step.key, "after")
                    if self.row_source is not None or self._deferred.events or step.has_more_to_record:
                        await self._record_result(step, attempt, result, data=data, type_name=type_name)
                    else:
                        # As most are: what `append` does, without a coroutine more.
                        if self._stopped is not None:
                            raise self._stopped
                        done = prepare_result(self.run_id, step, attempt, data, type_name, began_at)
                        self._in_flight += 1
                        try:
                            numbers = journal.write(Append(self.run_id, (done,), self.claim.epoch))
                            if not isinstance(numbers, list):
                                numbers = await numbers
                        except (PayloadInvalid, RowRefused, SequenceConflict):
                            raise
                        except Exception as error:
                            raise self._to_stopped(error) from error
                        finally:
                            self._in_flight -= 1
                        if self._note_written(numbers):
                            await self.catch_up()
                        if self.records.cancel_request is not None and not self.holds:
                            self.raise_if_cancelled()
                    if probe is not None:
                        probe(self, step.key, "recorded")
                    return result
            finally:
                self._calls_in_flight -= 1
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
            self._deferred.add(*beside.earlier, done, *beside.events, flush=self.flush_deferred)
        else:
            await self.append(*beside.earlier, done, *beside.events, rows=beside.rows)

    async def _record_failure(self, step: Step, attempt: int, error: Exception, began_at: float) -> float:
        """Record a failed attempt; returns after how many seconds the next one is due, raises if there is none."""
        failure = judge(step, attempt, error)
        more = {} if failure.retry_in_s is None else {"retry_at": now() + failure.retry_in_s}
        if (took_s := time.time() - began_at) >= MIN_TOOK_S:
            more["took_s"] = round(took_s, 3)
        await self.append(self.step_event(step, step.kinds.failed, attempt, error=dict(failure.error), **more))
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
