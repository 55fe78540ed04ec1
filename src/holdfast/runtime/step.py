"""A durable step as data: its key and policy, the events it writes, what goes into the same commit, what interrupts it.

Rule: whatever leaves a step as `Interrupted` must not be swallowed by user code, for nothing may be recorded after it.
It is therefore no `Exception`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from holdfast.enums import PauseReason
from holdfast.errors import HoldfastError, StepFailed
from holdfast.runtime.checkpoint.base import Statement
from holdfast.runtime.clock import sleep_until as sleep_until  # for those who make steps
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.outcomes.unknown_outcomes import OnUnknown as OnUnknown  # for those who make steps

current_step: ContextVar[tuple[str, str]] = ContextVar("holdfast_step")  # run and key


@dataclass(frozen=True)
class StepKinds:
    """The events a step writes: its intent, its result, its failure, its doubt."""

    started: str = EventKind.STEP_STARTED
    completed: str = EventKind.STEP_COMPLETED
    failed: str = EventKind.STEP_FAILED
    unknown: str = EventKind.STEP_UNKNOWN
    completed_text: str = field(init=False)
    """As plain text: encoders and databases look at an enum twice."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "completed_text", str(self.completed))


_STEP = StepKinds()
MODEL_CALL = StepKinds(EventKind.MODEL_REQUEST, EventKind.MODEL_RESPONSE, EventKind.MODEL_ERROR, EventKind.TOOL_UNKNOWN)
TOOL_CALL = StepKinds(EventKind.TOOL_STARTED, EventKind.TOOL_RESULT, EventKind.TOOL_ERROR, EventKind.TOOL_UNKNOWN)


@dataclass(frozen=True)
class SameCommit:
    """What is written together with an intent or a result; `earlier` are events that stand before it."""

    events: Sequence[Event] = ()
    rows: Sequence[Statement] = ()
    earlier: Sequence[Event] = ()


class RowSource(Protocol):
    """Makes rows from what events say, to be written in their transaction."""

    async def make_rows(self, events: Sequence[Event]) -> Sequence[Statement]: ...

    def note_written(self, rows: Sequence[Statement]) -> None:
        """Hear that the rows are written. Of rows for which this is not called nothing is known."""


@dataclass(frozen=True)
class Failure:
    """What is recorded as the `error` of a failed call, and in how many seconds it is made again; `None`: never.

    With a `pause` that is raised once the failure is recorded: whoever resumes the run makes the call again.
    """

    error: Mapping[str, Any]
    retry_in_s: float | None = None
    pause: "Suspended | None" = None


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Which failures of a call are followed by another one, how often and after how long."""

    retries: int = 0
    backoff_s: float = 0.2
    """How long the first wait is; each further one is twice as long."""
    max_backoff_s: float = 60.0
    jitter: float = 0.2
    """Which part of a wait is left to chance, up or down, so that many runs do not come back at the same moment."""
    retry_on: tuple[type[Exception], ...] = (Exception,)
    no_retry_on: tuple[type[Exception], ...] = ()

    def wait_s(self, attempt: int, error: Exception) -> float | None:
        """Return how long to wait after this attempt before the next one; `None` if there is none."""
        if attempt > self.retries or not isinstance(error, self.retry_on) or isinstance(error, self.no_retry_on):
            return None
        wait_s = min(self.backoff_s * 2.0 ** min(attempt - 1, 60), self.max_backoff_s)
        import random  # few flows ever wait by chance

        return wait_s * random.uniform(1 - self.jitter, 1 + self.jitter)  # noqa: S311 - no secret


NO_RETRY = RetryPolicy()


class ResultCodec(Protocol):
    """How the result of a step that is no JSON data is recorded and read back."""

    def encode(self, value: Any, what: str) -> tuple[Any, str | None, Any]:
        """Return a value as JSON data, the name of its type, and the value as a replay will return it.

        The name is `None` for JSON data. Raises `PayloadInvalid` if a replay could not return the same.
        """
        ...

    def decode(self, data: Any, type_name: str | None, what: str) -> Any:
        """Return what was recorded under this name. Raises `Nondeterminism` if the code now has another type there."""
        ...

    def accept(self, data: Any, what: str) -> Any:
        """Return what a person's answer, or a reconciler's, stands for. Raises `PayloadInvalid` if for nothing."""
        ...


_NO_FACTS: Mapping[str, Any] = MappingProxyType({})


class Step(msgspec.Struct, gc=False):  # each step of a flow makes one, and a dataclass takes four times as long
    """A call to be made once. `key` is unique in its run; `fingerprint` tells whether a replay asks for the same."""

    key: str
    lane_id: str = "main"
    on_unknown: OnUnknown = "rerun"
    has_intent: bool = False
    """Write the intent first even if an unknown outcome is simply run again, as model calls do for the money."""
    retry: RetryPolicy = NO_RETRY
    timeout_s: float | None = None
    """How long one attempt may take."""
    in_thread: bool = False
    """Call it in a thread: the call blocks, and something else runs beside it."""
    codec: ResultCodec | None = None
    """For results that are not JSON data; without one, only JSON data is a result."""
    raises_as_recorded: bool = False
    """Raise a failure the first time already as a replay will raise it."""
    fingerprint: Mapping[str, str] = _NO_FACTS
    kinds: StepKinds = _STEP
    details: Mapping[str, Any] = _NO_FACTS
    """Facts for readers, written with the intent, or with the result where there is none."""
    with_intent: Callable[[], "SameCommit"] | None = None
    with_result: Callable[[Any], "SameCommit"] | None = None
    """Events and row changes that belong into the same transaction: money reserved, money settled."""
    is_acked_late: bool = False
    """Its result is written with what the run appends next: for a call that may be made again, and on whose result
    nobody acts before that append."""
    on_failure: Callable[[Exception], Failure] | None = None
    """Judges a failure instead of `retry`; what it tells is what a later process finds as the record's `error`."""

    @property
    def writes_intent(self) -> bool:
        return self.has_intent or self.on_unknown != "rerun"

    @property
    def has_more_to_record(self) -> bool:
        """True if more than the result itself belongs into the append of the result, or that may come later."""
        has_details = bool(self.details) and not self.writes_intent
        return has_details or self.with_result is not None or self.is_acked_late


class Interrupted(BaseException):
    """The flow cannot go on in this process; what the journal holds is all that counts."""


class Suspended(Interrupted):
    """A person must answer first; `reason` says what: if no kind of its own does, what became of a call."""

    reason = PauseReason.OUTCOME
    error: HoldfastError | None = None
    """What made it wait, where that is an error."""

    def events(self, run_id: str) -> list[Event]:
        """Return the events that explain the pause, to be written with it."""
        return []


class Parked(Interrupted):
    """A flow waits until `wake_at`, or for an event if that is `None`, and its runtime takes the slot back.

    What may end the wait earlier is an append to one of `run_ids`: the run itself, and children it waits for.
    """

    def __init__(self, key: str, wake_at: float | None = None, *, run_ids: Sequence[str] = ()) -> None:
        super().__init__(key)
        self.key, self.wake_at, self.run_ids = key, wake_at, tuple(run_ids)

    @classmethod
    def join(cls, parked: "Sequence[Parked]") -> "Parked":
        """Return what lanes that are all parked wait for: the first of their times, or an append to any of the runs."""
        first = min(parked, key=lambda one: math.inf if one.wake_at is None else one.wake_at)
        return cls(first.key, first.wake_at, run_ids=list(dict.fromkeys(run for one in parked for run in one.run_ids)))


class Drained(Interrupted):
    """The process is to end: what is in flight was recorded, and nothing more is begun. The run stays as it is."""


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


class PauseRun(Interrupted):
    """A person paused the run."""


def idempotency_key(run_id: str, key: str) -> str:
    """Return a key that is unique over all runs: the first colon ends the run's part."""
    return f"{run_id.replace('%', '%25').replace(':', '%3A')}:{key}"


def step_key() -> str:
    """Return the idempotency key of the step that runs now, the same on every try, in every process: for services."""
    try:
        return idempotency_key(*current_step.get())
    except LookupError:
        raise StepFailed("step_key() is only known inside a step.", hint="Call it in the function of a step.") from None
