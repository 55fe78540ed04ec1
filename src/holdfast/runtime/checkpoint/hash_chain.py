"""Numbers and hashes of a run's events. Pure: a store reads a head, extends it here, and writes what comes back.

Each event's hash covers the hash before it, its number and its stored bytes. Against a known head this shows change,
loss and reordering; it is not a signature.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import islice
from typing import Any, NamedTuple, cast

from holdfast.enums import RunStatus
from holdfast.errors import JournalCorrupt, LeaseLost, PayloadInvalid, SequenceConflict
from holdfast.runtime.checkpoint.base import Append, Prepared
from holdfast.runtime.checkpoint.blobs import MARK, digests_in, put_back
from holdfast.runtime.checkpoint.gc_pause import without_gc
from holdfast.runtime.events import Event, from_bodies, from_body, from_content
from holdfast.runtime.jsondata import from_json
from holdfast.runtime.state import status_after

_AT_ONCE = 500  # rows; more is no quicker, and one odd row makes all of its chunk slow
# What reading a row raises that is not the event it was.
_DAMAGE = (PayloadInvalid, AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError)
RawRow = tuple[int, str, bytes, bytes]
"""seq, kind, body, hash as they lie in the store; the hash is empty if no journal wrote the row."""


@dataclass(slots=True)
class Head:
    """The end of a run's journal as the store has it."""

    seq: int
    hash: bytes
    status: RunStatus | str
    epoch: int = 0
    row_status: RunStatus | str | None = None
    """The status that the run's row has, where the store knows it."""


class StoredRow(NamedTuple):
    run_id: str
    seq: int
    kind: str
    body: bytes
    hash: bytes


_to_row = cast("Callable[[tuple[str, int, str, bytes, bytes]], StoredRow]", partial(tuple.__new__, StoredRow))
# in half the time of the constructor


def genesis(run_id: str) -> bytes:
    return sha256(run_id.encode()).digest()


def link(before: bytes, seq: int, body: bytes) -> bytes:
    return sha256(before + seq.to_bytes(8, "big") + body).digest()


def check_epoch(append: Append, head: Head) -> None:
    if append.epoch is not None and append.epoch != head.epoch:
        raise LeaseLost(
            f"Run {append.run_id!r} was taken over: this process holds epoch {append.epoch}, "
            f"the current one is {head.epoch}.",
            run_id=append.run_id,
        )


def extend(head: Head, events: Sequence[Prepared]) -> list[StoredRow]:
    """Number and chain events, moving `head` on. Raises `SequenceConflict` and leaves `head` as it was."""
    rows: list[StoredRow] = []
    seq, last_hash, status = head.seq, head.hash, head.status  # `head` moves only if all of them fit
    for prepared in events:
        kind, body = prepared.kind, prepared.body
        if prepared.seq and prepared.seq <= seq:
            raise SequenceConflict(
                f"Run {prepared.run_id!r} is at number {seq}; an event with number {prepared.seq} comes too late.",
                run_id=prepared.run_id,
                head=seq,
            )
        seq = prepared.seq or seq + 1
        last_hash = link(last_hash, seq, body)
        if kind.startswith("run."):
            status = status_after(status, kind)
        rows.append(_to_row((prepared.run_id, seq, kind, body, last_hash)))
    head.seq, head.hash, head.status = seq, last_hash, status
    return rows


def extend_by_step(head: Head, prepared: Prepared) -> StoredRow:
    """Do what `extend` does for one event without a number that changes no status, as nearly all are."""
    seq = head.seq = head.seq + 1
    body = prepared.body
    digest = head.hash = sha256(head.hash + seq.to_bytes(8, "big") + body).digest()
    return _to_row((prepared.run_id, seq, prepared.kind, body, digest))


def decode(
    run_id: str,
    rows: Iterable[RawRow],
    before: bytes,
    read_blobs: Callable[[set[str]], Mapping[str, bytes]],
) -> tuple[list[Event], bytes]:
    """Check the chain from `before` on and decode; returns the events and the last hash. Raises `JournalCorrupt`."""
    events: list[Event] = []
    marked: list[tuple[int, int, dict[str, Any]]] = []
    seq = 0
    left = iter(rows)
    with without_gc():
        try:
            while chunk := list(islice(left, _AT_ONCE)):
                for seq, _, body, row_hash in chunk:
                    before = sha256(before + seq.to_bytes(8, "big") + body).digest()
                    if before != row_hash:
                        if row_hash:
                            raise corrupt(run_id, seq, "its content does not match its hash")
                        before = row_hash  # a row without a journal: the next one was linked to what is there
                decoded = from_bodies(run_id, [row[0] for row in chunk], [row[2] for row in chunk])
                if decoded is not None and [event.kind for event in decoded] == [row[1] for row in chunk]:
                    events += decoded  # as nearly all are: of this version, whole, and what they are filed as
                    continue
                for seq, kind, body, _ in chunk:
                    event = _decode_one(run_id, seq, kind, body)
                    if event.kind != kind:
                        raise corrupt(run_id, seq, "it is not the event it is filed as")
                    if event.extra and MARK in event.extra:
                        marked.append((len(events), seq, from_json(body)))
                    events.append(event)
            if marked:
                blobs = read_blobs(digests_in(content for _, _, content in marked))
                for index, seq, content in marked:
                    put_back(content, blobs, f"run {run_id!r} event {seq}")
                    events[index] = from_content(run_id, seq, content)
        except (
            PayloadInvalid,
            AttributeError,
            KeyError,
            TypeError,
            ValueError,
            OverflowError,
            RecursionError,
        ) as error:
            raise corrupt(run_id, seq, "it is not an event") from error
    return events, before


def _decode_one(run_id: str, seq: int, kind: str, body: bytes) -> Event:
    return from_body(run_id, seq, body) if body else Event(run_id, seq=seq, kind=kind, ts=0.0, span_id="")


def check_number(run_id: str, head: object) -> None:
    """Raise `JournalCorrupt` for a head that a damaged page has made into something else than a number."""
    if not isinstance(head, int):
        raise corrupt(run_id, None, "the number of its last event is not a number")


def corrupt(run_id: str, seq: int | None, why: str) -> JournalCorrupt:
    place = "an unknown place" if seq is None else f"event {seq}"
    return JournalCorrupt(f"The journal of run {run_id!r} is damaged at {place}: {why}.", run_id=run_id, seq=seq)
