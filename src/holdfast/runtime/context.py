"""What a flow is given: steps, sleep, approval, and parallel lanes.

Rule: within a lane everything happens in one order, which the journal keeps. A replay that asks for something else at a
place is refused, before anything is called.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from holdfast.enums import ApprovalDecisionAction
from holdfast.errors import ApprovalRejected, Nondeterminism
from holdfast.runtime.durable import CancelRun, Interrupted, OnUnknown, RunLog, Step, Stopped, Suspended, sleep_until
from holdfast.runtime.events import EventKind
from holdfast.runtime.journal import Journal
from holdfast.runtime.jsondata import to_json
from holdfast.runtime.records import MAIN_LANE, Record, RecordType, describe, fingerprint_of

_T = TypeVar("_T")


class Decision(str):
    """What a person answered: a string (`"approve"`) that also knows the comment and who gave it."""

    __slots__ = ("by", "comment")

    comment: str
    by: str

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> "Decision":
        decision = cls(payload.get("action", ""))
        decision.comment = payload.get("comment", "")
        decision.by = payload.get("by", "")
        return decision


@dataclass
class _Lane:
    """One line of steps that follow each other; lanes beside it are made by `gather`."""

    lane_id: str
    recorded: list[Record]
    position: int = 0
    uses: Counter[tuple[str, str]] = field(default_factory=Counter)
    is_busy: bool = False
    interrupted: Interrupted | None = None

    def take(self, record_type: RecordType, name: str) -> str:
        """The key of the next thing this lane does. Raises if the journal has something else there."""
        if self.interrupted is not None:
            raise self.interrupted
        if self.is_busy:
            raise Stopped(
                Nondeterminism(
                    f"{describe(record_type, name)} was asked for while another step of lane {self.lane_id!r} runs.",
                    hint="Use ctx.gather for parallel steps, and start no step inside a step.",
                )
            )
        self.uses[record_type, name] += 1
        ordinal = self.uses[record_type, name]
        prefix = "" if self.lane_id == MAIN_LANE else f"{self.lane_id}/"
        key = f"{prefix}{name}" if ordinal == 1 else f"{prefix}{name}#{ordinal}"
        if self.position < len(self.recorded):
            found = self.recorded[self.position]
            if (found.type, found.key) != (record_type, key):
                raise Stopped(_other_than(found, record_type, key, self.lane_id, self.position))
            self.position += 1
        return key


def _other_than(found: Record, record_type: RecordType, key: str, lane_id: str, position: int) -> Nondeterminism:
    return Nondeterminism(
        f"The journal has {describe(found.type, found.key)} at place {position + 1} of lane {lane_id!r}, "
        f"but the code now asks for {describe(record_type, key)}.",
        recorded=found.key,
        asked=key,
    )


_lane: ContextVar[_Lane] = ContextVar("holdfast_lane")


class Context:
    """What a flow is given: the way to do things once."""

    def __init__(self, log: RunLog, journal: Journal) -> None:
        self._log = log
        self._journal = journal
        self._lanes: list[_Lane] = []

    @property
    def run_id(self) -> str:
        return self._log.run_id

    async def step(
        self,
        key: str,
        fn: Callable[..., Any],
        *args: Any,
        on_unknown: OnUnknown = "rerun",
        retries: int = 0,
        backoff_s: float = 0.2,
        **kwargs: Any,
    ) -> Any:
        """Call `fn(*args, **kwargs)` once and return its result, JSON data, now and on every resume.

        A failure is tried again `retries` times, first after `backoff_s`, then twice as long each time. `on_unknown`
        says what to do if a process died in the middle of the call: `"rerun"` it, `"ask"` a person, `"fail"`, or
        ask `async def (key) -> Done(result) | NotDone()`, which gets the step's idempotency key.
        """
        _check_step(key, fn, on_unknown)
        lane = _lane.get()
        full_key = lane.take("step", key)
        step = Step(
            full_key,
            lane.lane_id,
            on_unknown=on_unknown,
            retries=retries,
            backoff_s=backoff_s,
            fingerprint=fingerprint_of(arguments=[args, kwargs]) if args or kwargs else {},
        )
        return await self._in_lane(lane, self._log.step(step, lambda: fn(*args, **kwargs)))

    async def sleep(self, seconds: float) -> None:
        """Wait until `seconds` after the first time this line was reached, however often the process dies meanwhile."""
        lane = _lane.get()
        key = lane.take("timer", "sleep")
        await self._in_lane(lane, self._sleep(lane, key, seconds))

    async def _sleep(self, lane: _Lane, key: str, seconds: float) -> None:
        record = self._log.find("timer", key, {})
        if record is None:
            wake_at = time.time() + seconds
            await self._log.append(
                self._log.event(EventKind.TIMER_STARTED, lane.lane_id, key=key, wake_at=wake_at, seconds=seconds)
            )
        else:
            wake_at = record.wake_at
        await sleep_until(wake_at)

    async def approval(self, key: str, show: Any = None) -> Decision:
        """Go on only if a person approves what is shown.

        Until someone answers, `run_flow` raises `RunPaused` and no process is needed. Raises `ApprovalRejected` if the
        answer is `reject` or `request_changes`; `abort` cancels the run.
        """
        lane = _lane.get()
        full_key = lane.take("approval", key)
        return await self._in_lane(lane, self._approval(lane, full_key, show))

    async def _approval(self, lane: _Lane, key: str, show: Any) -> Decision:
        shown = to_json(show, f"what approval {key!r} shows")[1]
        fingerprint = fingerprint_of(show=shown)
        record = self._log.find("approval", key, fingerprint)
        if record is None:
            await self._log.append(
                self._log.event(
                    EventKind.HUMAN_APPROVAL_REQUESTED, lane.lane_id, key=key, show=shown, fingerprint=fingerprint
                )
            )
        if record is None or record.answer is None:
            raise Suspended(key)
        decision = Decision.from_payload(record.answer)
        if decision == ApprovalDecisionAction.ABORT.value:
            raise CancelRun(decision.comment, decision.by)
        if decision != ApprovalDecisionAction.APPROVE.value:
            raise ApprovalRejected(
                f"Approval {key!r} was answered with {str(decision)!r}: {decision.comment or 'no comment'}.",
                action=str(decision),
                comment=decision.comment,
            )
        return decision

    async def gather(self, *awaitables: Awaitable[Any]) -> list[Any]:
        """Run awaitables in parallel lanes and return their results in order.

        All lanes run to their end before the first failure, in order of the arguments, is raised.
        """
        parent = _lane.get()
        parent.uses["gather", ""] += 1
        prefix = "" if parent.lane_id == MAIN_LANE else f"{parent.lane_id}/"
        number = parent.uses["gather", ""]
        lanes = [self._open_lane(f"{prefix}g{number}.{index + 1}") for index in range(len(awaitables))]
        tasks = [asyncio.ensure_future(_run_in(lane, item)) for lane, item in zip(lanes, awaitables, strict=True)]
        return await self._in_lane(parent, self._join(tasks))

    async def _join(self, tasks: Sequence["asyncio.Future[Any]"]) -> list[Any]:
        self._journal.writers += len(tasks)
        try:
            if tasks:
                await asyncio.wait(tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        finally:
            self._journal.writers -= len(tasks)
        errors = [error for task in tasks if (error := task.exception()) is not None]
        # Whatever ends the run comes first, a person's answer last: by then the other lanes have done all they can.
        for error_type in (Stopped, CancelRun, Exception, Suspended, BaseException):
            for error in errors:
                if isinstance(error, error_type):
                    raise error
        return [task.result() for task in tasks]

    # -- inside -------------------------------------------------------------------------------------------------------

    def _open_lane(self, lane_id: str) -> _Lane:
        lane = _Lane(lane_id, self._log.records.lanes.get(lane_id, []).copy())
        self._lanes.append(lane)
        return lane

    async def run(self, flow: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run a flow's function in the main lane and make sure that it asked for all that is recorded."""
        result = await _run_in(self._open_lane(MAIN_LANE), flow())
        self._check_nothing_left()
        return result

    def _check_nothing_left(self) -> None:
        entered = {lane.lane_id: lane.position for lane in self._lanes}
        for lane_id, recorded in self._log.records.lanes.items():
            left = recorded[entered.get(lane_id, 0) :]
            if left:
                raise Stopped(
                    Nondeterminism(
                        f"The journal has {describe(left[0].type, left[0].key)}, which the code no longer asks for.",
                        recorded=left[0].key,
                    )
                )

    @staticmethod
    async def _in_lane(lane: _Lane, work: Awaitable[_T]) -> _T:
        lane.is_busy = True
        try:
            return await work
        except Interrupted as interrupted:
            lane.interrupted = interrupted
            raise
        finally:
            lane.is_busy = False


async def _run_in(lane: _Lane, work: Awaitable[_T]) -> _T:
    token = _lane.set(lane)
    try:
        return await work
    finally:
        _lane.reset(token)


def _check_step(key: object, fn: object, on_unknown: object) -> None:
    if not isinstance(key, str) or not key:
        raise TypeError(f"The key of a step is a string, not {key!r}.")
    if not callable(fn):
        raise TypeError(f"Step {key!r} needs a function to call, not {fn!r}.")
    if on_unknown not in ("rerun", "ask", "fail") and not callable(on_unknown):
        raise TypeError(f"on_unknown is 'rerun', 'ask', 'fail' or an async function, not {on_unknown!r}.")
