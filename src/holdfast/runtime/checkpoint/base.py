"""The contract of every store, and the little that all of them share.

`Checkpointer` is what programs outside may rely on. `JournalStore` is what the SQL stores add for the product: an owner
with an epoch, appends in batches with row changes in the same transaction, and a way to notice other writers.
"""

import os
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec

from holdfast.errors import HoldfastError, RunBusy, RunIdInvalid, SequenceConflict
from holdfast.runtime.checkpoint.blobs import INLINE_BYTES, move_out_big_values
from holdfast.runtime.events import Event, content_of, from_body, from_content, to_body
from holdfast.runtime.state import RunState

MAX_RUN_ID_CHARS = 200
MAX_SEQ = 2**53 - 1  # what JavaScript still counts exactly; every database holds it too
_NO_BLOBS: Mapping[str, bytes] = {}


@runtime_checkable
class Checkpointer(Protocol):
    """Keeps the journals of runs: per run one append-only list, numbered upwards, and the latest snapshot.

    On every store: what is saved is a copy, what is loaded is the caller's own, and what was returned from `save_*`
    survives `kill -9` and, on the disk stores, a power cut.
    """

    def save_event(self, event: Event) -> Event:
        """Append one event and return it as stored; `seq` 0 means the next number of its run.

        The very same event again changes nothing. Raises `SequenceConflict`, and writes nothing, if its number is not
        above the run's last one.
        """
        ...

    def save_snapshot(self, run_id: str, state: RunState) -> None: ...

    def load_latest(self, run_id: str) -> RunState | None: ...

    def list_events(self, run_id: str, since_seq: int = 0) -> list[Event]:
        """Return the events with `seq > since_seq`, in order. Raises `JournalCorrupt` rather than leave one out."""
        ...

    def list_runs(self) -> list[str]:
        """List every run with an event or a snapshot, the one written last first."""
        ...

    def delete_run(self, run_id: str) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Statement:
    """A row change that goes into the append's transaction; `:name` marks a parameter.

    `expect` is the number of rows it must change; another number refuses the whole append.
    """

    sql: str
    params: Mapping[str, Any]
    expect: int | None = 1
    is_of_one_row: bool = False
    """True if it can change one row at most: where it is refused, nothing has to be undone."""


FLOW_FORMAT = 1
"""What a flow's run needs of who drives it: raised when an older version would do wrong with what this one records."""


class FlowEnd(Statement):
    """The row change of a flow that is over, with the parameters `run_id`, `status` and `now`.

    Stores know it by its type: they may write those of many runs in one statement of their own.
    """


MOST_TAKEOVERS = 3


@dataclass(frozen=True)
class Claim:
    """The right to write to a run: valid as long as nobody else has claimed it, that is while `epoch` is current."""

    run_id: str
    epoch: int
    head: int
    is_takeover: bool = field(default=False, compare=False)
    """The owner before has died or gone silent without having given it up."""
    takeovers: tuple[int, ...] = field(default=(), compare=False)
    """Of a takeover: the number of the run's last event at each of the last takeovers (`MOST_TAKEOVERS`), this one too.
    They are counted with the claim itself, so that no death after it escapes."""


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """An event checked and encoded, ready to be numbered."""

    run_id: str
    kind: str
    seq: int
    """0 for the next one."""
    body: bytes
    blobs: Mapping[str, bytes] = _NO_BLOBS
    decoded: dict[str, Any] | None = None
    """What the body holds, big values with it; `None` if nobody has needed it yet and it has none."""

    @property
    def content(self) -> dict[str, Any]:
        """All of the event but its run and number; nobody changes it."""
        if self.decoded is not None:
            return self.decoded
        event = from_body(self.run_id, self.seq, self.body)
        return content_of(event, event.payload)

    @property
    def event(self) -> Event:
        return self.stored_as(self.seq)

    def stored_as(self, seq: int) -> Event:
        return from_content(self.run_id, seq, self.content)


class Append(msgspec.Struct, frozen=True, gc=False):
    """Events and row changes of one run that are written together or not at all.

    With an `epoch` it is the owner's, and refused with `LeaseLost` once another has claimed the run; without one it is
    an outside writer's.
    """

    run_id: str
    events: Sequence[Prepared]
    epoch: int | None = None
    rows: Sequence[Statement] = ()
    is_last: bool = False
    """The owner gives the run up with it: a store whose owners are rows clears the owner in the same transaction."""


class Opening(msgspec.Struct, frozen=True, gc=False):
    """A flow that nobody has begun, as it was read, and the event that begins it."""

    run_id: str
    epoch: int
    head: int
    head_hash: bytes
    first: Prepared


AppendResult = list[int] | HoldfastError
"""The numbers that the events have got, or why none was written."""
Answer = list[AppendResult] | Callable[[], list[AppendResult]]
"""What became of a batch; or, if that is unclear or nothing was written, what to call to have it written once."""


class AppendPipeline(Protocol):
    """Batches on their way to a store: sent without waiting, answered in the order of sending.

    A run that is under way must not be sent again before its answer.
    """

    @property
    def is_lost(self) -> bool:
        """True once nothing more can be sent; `receive` then tells how to go on with what was under way."""
        ...

    @property
    def has_more_to_send(self) -> bool: ...

    @property
    def sender(self) -> int:
        """Who sends, as the store's notices of a change name it."""
        ...

    def fileno(self) -> int:
        """Return the file descriptor to wait for: it is readable when there are answers."""
        ...

    def takes(self, append: Append) -> bool:
        """Return true if this append can be sent; what cannot needs `JournalStore.append`."""
        ...

    def send(self, batch: Sequence[Append], ticket: Any) -> None:
        """Send what it takes. If it raises, nothing was sent; a loss is not raised but told by `is_lost`."""
        ...

    def flush(self) -> None:
        """Go on sending, once the network takes more."""
        ...

    def receive(self) -> list[tuple[Any, Answer]]:
        """Return what has been answered, each with the ticket it was sent with."""
        ...

    def close(self) -> None: ...


class Leases(Protocol):
    """The leases of this process's claims, which the store renews by itself, whatever the process is busy with."""

    @property
    def is_holding(self) -> bool:
        """True while they are known to hold, or there are none: only then may a call begin."""
        ...

    @property
    def missed(self) -> int:
        """How many times so far not all of them were renewed when they should be; each counts once, for all of them."""
        ...

    @property
    def takeovers(self) -> int:
        """How many runs this process has taken so far from an owner that had not given them up."""
        ...

    def note_outage(self) -> None:
        """Take no run from an owner whose lease is over for as long as a lease: it may have been cut off with us."""
        ...

    def show(self, folder: Path, run_ids: Sequence[str], *, until: float | None = None) -> None:
        """Write from now on into a file of this process in `folder` until when it holds these runs, for whoever
        outlives it; with `until` (by `elapsed_s`) of runs that it has no claims of yet."""
        ...

    def add_listener(self, listener: Callable[[Claim], None]) -> None:
        """Call `listener`, from another thread, with each claim of this process that is found to be another's now."""
        ...

    def remove_listener(self, listener: Callable[[Claim], None]) -> None: ...


class OwnerEnding(RunBusy):
    """The run's owner was killed and is not quite gone: whoever waits for that has the run in a moment."""


class JournalStore(Checkpointer, Protocol):
    """A store with owners and batches. All methods are synchronous and safe under threads."""

    @property
    def lease_s(self) -> float | None:
        """How long a claim lives without a sign of life; `None` if the operating system knows when an owner dies."""
        ...

    @property
    def leases(self) -> Leases | None:
        """The leases of this process; `None` if there is no `lease_s`."""
        ...

    @property
    def is_local(self) -> bool:
        """True if an append is quick enough to be made on the event loop itself."""
        ...

    @property
    def has_rows(self) -> bool:
        """True if rows can be changed with events and read: what needs an index of runs needs such a store."""
        ...

    def claim(self, run_id: str, *, force: bool = False) -> Claim:
        """Become the owner: every earlier epoch is refused from now on. Raises `RunBusy` if a live owner has it."""
        ...

    def claim_many(
        self, run_ids: Sequence[str], *, force: bool = False, wait_s: float = 30.0
    ) -> list[Claim | HoldfastError]:
        """Claim several runs in one transaction; each gets its claim or its refusal.

        With `wait_s` 0 it waits for nothing: it raises `StoreBusy`, and a run that is free in a moment is refused with
        `OwnerEnding`.
        """
        ...

    def begin_many(self, openings: Sequence[Opening]) -> list[Claim | None]:
        """Claim flows and begin them, event and row, in one transaction; `None` for those that are not as they were.

        What is not begun so is to be claimed, read and begun step by step; a store may leave all of them to that.
        """
        ...

    def release(self, claim: Claim) -> None:
        """Release a claim; does nothing if it was lost already."""
        ...

    def release_many(self, claims: Sequence[Claim]) -> None:
        """Release several claims in one transaction."""
        ...

    def forget(self, claim: Claim) -> bool:
        """Forget a claim that was given up with its last append; false if it is still to be released. Never waits."""
        ...

    def renew(self, claims: Sequence[Claim]) -> None:
        """Prolong these leases now, where there are leases; the store itself does so in time."""
        ...

    def append(self, batch: Sequence[Append], *, wait_s: float = 30.0) -> list[AppendResult]:
        """Write a batch in one transaction; one append's refusal does not fail the others."""
        ...

    def delete_run(self, run_id: str, *, claim: Claim | None = None, rows: Sequence[Statement] = ()) -> None:
        """Remove a journal and make row changes, in one transaction: on return the run is gone for every reader.

        Raises, with nothing changed, `LeaseLost` if `claim` is no longer the current one, `RowRefused` if a row was not
        as expected.
        """
        ...

    def open_pipeline(self) -> AppendPipeline | None:
        """Open a quicker way for the appends of owners, if the store has one; for one thread at a time."""
        ...

    def read_heads(self, run_ids: Sequence[str]) -> dict[str, int]:
        """Read the last number of each run that exists."""
        ...

    def read_rows(self, sql: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Read rows that stand beside the journals; `:name` marks a parameter."""
        ...

    def find_owned(self, run_ids: Sequence[str]) -> set[str]:
        """Find those of these runs that a living process owns, without claiming any."""
        ...

    def wait_for_change(self, timeout_s: float, *, but_by: int | None = None, of: Set[str] | None = None) -> bool:
        """Block until another process may have written, or the time is over.

        `but_by` is a sender that is not news; with `of` only these runs are, where the store can tell.
        """
        ...


def prepare(event: Event) -> Prepared:
    """Check and encode an event, big values aside. Raises `RunIdInvalid`, `PayloadInvalid`."""
    check_run_id(event.run_id)
    if type(event.seq) is not int or not 0 <= event.seq <= MAX_SEQ:
        raise SequenceConflict(f"seq must be 0 or a positive whole number up to {MAX_SEQ}, not {event.seq!r}.")
    body, payload = to_body(event)
    content = content_of(event, payload)
    blobs: Mapping[str, bytes] = _NO_BLOBS
    if len(body) > INLINE_BYTES:
        body, blobs = move_out_big_values(body, content)
    return Prepared(event.run_id, str(event.kind), event.seq, body, blobs, content)


class _RunIds:
    """Makes ids of 32 digits by chance, of which the first eight go on from one run of the process to its next.

    Runs that begin together lie together in the indexes of a store then, and a commit of many runs changes fewer pages.
    """

    def __init__(self) -> None:
        self.start_over()

    def start_over(self) -> None:
        self._last = int.from_bytes(os.urandom(4), "big")

    def make(self) -> str:
        chance = os.urandom(14)
        # A step of up to 4,096, for people: eight digits tell runs apart, and neighbours do not look the same.
        self._last = (self._last + 1 + int.from_bytes(chance[:2], "big") % 4096) % 2**32
        return f"{self._last:08x}{chance[2:].hex()}"


_run_ids = _RunIds()
os.register_at_fork(after_in_child=_run_ids.start_over)
new_run_id = _run_ids.make


def check_run_id(run_id: object) -> str:
    if type(run_id) is str and run_id.isalnum() and run_id.isascii() and len(run_id) <= MAX_RUN_ID_CHARS:
        return run_id  # as nearly all are
    if not isinstance(run_id, str):
        raise RunIdInvalid(f"A run id is a string, not a {type(run_id).__name__}.")
    if not run_id:
        raise RunIdInvalid("A run id must not be empty.")
    if len(run_id) > MAX_RUN_ID_CHARS:
        raise RunIdInvalid(f"A run id has at most {MAX_RUN_ID_CHARS} characters; this one has {len(run_id)}.")
    if "\0" in run_id:
        raise RunIdInvalid("A run id must not hold NUL.")
    try:
        run_id.encode()
    except UnicodeEncodeError as error:
        raise RunIdInvalid("A run id must not hold a lone surrogate.") from error
    return run_id
