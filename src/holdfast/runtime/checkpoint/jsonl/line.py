"""One line of a JSONL journal: an event as JSON whose last member, "hash", chains it to the line before.

The hash covers the hash before it and the line's bytes up to its own member, so that every changed, lost or moved byte
of a complete line is found. A line without "hash" comes from a person or another tool: it is accepted and chained over.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from holdfast.errors import JournalCorrupt, PayloadInvalid
from holdfast.runtime.checkpoint.hash_chain import genesis
from holdfast.runtime.events import Event, from_content, to_body
from holdfast.runtime.jsondata import from_json

_MEMBER_START = b',"hash":"'
_MEMBER_BYTES = len(_MEMBER_START) + 64 + len(b'"}')
_HEX_DIGEST = re.compile(r"[0-9a-f]{64}")


class FilePosition(NamedTuple):
    """A place between two lines up to which everything was found good."""

    seq: int
    offset: int
    line: int
    hash: bytes


def first_position(run_id: str) -> FilePosition:
    return FilePosition(0, 0, 0, genesis(run_id))


def hash_member(digest: bytes) -> bytes:
    return _MEMBER_START + digest.hex().encode() + b'"}'


def encode_line(at: FilePosition, run_id: str, seq: int, content: Mapping[str, Any]) -> tuple[bytes, FilePosition]:
    """Return the line that comes at `at`, with its newline, and the place after it."""
    number = {"run_id": run_id, "seq": seq}
    text = msgspec.json.encode({**number, **content, **number})[:-1]  # twice: first to read, last to win over `extra`
    digest = hashlib.sha256(at.hash + text).digest()
    line = text + hash_member(digest) + b"\n"
    return line, FilePosition(seq, at.offset + len(line), at.line + 1, digest)


def read_lines(run_id: str, lines: Iterable[bytes], at: FilePosition) -> Iterator[tuple[FilePosition, Event]]:
    """Check and decode the lines that follow `at`, up to the last newline. Raises `JournalCorrupt`."""
    for line in lines:
        if not line.endswith(b"\n"):
            return
        try:
            digest, event = _read_line(line[:-1], at.hash)
            if event.run_id != run_id:
                raise ValueError(f"it is of run {event.run_id!r}")
            if type(event.seq) is not int or event.seq <= at.seq:
                raise ValueError(f"its number {event.seq!r} does not follow {at.seq}")
        except (PayloadInvalid, KeyError, TypeError, ValueError, RecursionError) as error:
            raise corrupt_line(run_id, at.line + 1, error) from error
        at = FilePosition(event.seq, at.offset + len(line), at.line + 1, digest)
        yield at, event


def _read_line(line: bytes, before: bytes) -> tuple[bytes, Event]:
    text, member = line[:-_MEMBER_BYTES], line[-_MEMBER_BYTES:]
    if not member.startswith(_MEMBER_START):
        return hashlib.sha256(before + line).digest(), _read_foreign_line(line)
    digest = hashlib.sha256(before + text).digest()
    if member != hash_member(digest):
        raise ValueError("its content does not match its hash")
    content = from_json(text + b"}")
    return digest, from_content(content.pop("run_id"), content.pop("seq"), content)


def _read_foreign_line(line: bytes) -> Event:
    content = from_json(line)
    if not isinstance(content, dict):
        raise ValueError("it is not an object")
    event = Event.from_dict({"span_id": "", "ts": 0.0, **content})  # the same at every reading
    to_body(event)
    name = next(reversed(content))
    is_digest = isinstance(content[name], str) and _HEX_DIGEST.fullmatch(content[name])
    # One damaged byte in the last member must not make a line of ours pass for a foreign one.
    if name == "hash" or (name in event.extra and is_digest):
        raise ValueError("its last member, 'hash', is damaged")
    return event


def corrupt_line(run_id: str, line: int, error: Exception) -> JournalCorrupt:
    reason = error.message if isinstance(error, PayloadInvalid) else str(error)
    message = f"The journal of run {run_id!r} is damaged at line {line} of events.jsonl: {reason.rstrip('.')}."
    return JournalCorrupt(message, run_id=run_id, line=line)
