"""A run as one file that can be checked without its database: its journal and what it made, each with its digest.

It is a zip file: `events.jsonl` as the store of files writes it, each line chained to the one before; the files beside
it; and `manifest.json`, which names the last hash and the digest of every file. The digest of the manifest stands for
all of it. Who can write the file can write another one: whoever notes the digest elsewhere can tell them apart.
"""

import hashlib
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import JournalCorrupt, StoreNewer, StoreUnreadable
from holdfast.runtime.checkpoint.jsonl.line import encode_line, first_position, read_lines
from holdfast.runtime.events import Event
from holdfast.runtime.state import fold

FORMAT = 1
EVENTS = "events.jsonl"
MANIFEST = "manifest.json"
MAX_BYTES = 2 * 1024**3  # unpacked: a small file of a stranger's must not fill the memory
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the same run gives the same bytes, whenever it is exported


@dataclass(frozen=True)
class Bundle:
    """What a bundle holds, as far as it was checked."""

    run_id: str
    state: str
    events: int
    files: tuple[str, ...]
    digest: str

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "files": list(self.files)}


def write_bundle(path: Path, run_id: str, events: Sequence[Event], files: Mapping[str, bytes]) -> Bundle:
    """Write a run into a new file. Raises `FileExistsError`, and leaves nothing behind if it fails."""
    lines, at = [], first_position(run_id)
    for event in events:
        rest = {key: value for key, value in event.to_dict().items() if key not in ("run_id", "seq")}
        line, at = encode_line(at, run_id, event.seq, rest)
        lines.append(line)
    contents = {EVENTS: b"".join(lines), **files}
    state = _find_state(events)
    manifest = _to_json(
        {
            "format": FORMAT,
            "run_id": run_id,
            "state": state,
            "events": len(events),
            "head": at.hash.hex(),
            "files": {name: _digest(content) for name, content in sorted(contents.items())},
        }
    )
    with path.open("xb") as file:
        try:
            with zipfile.ZipFile(file, "w") as archive:
                for name, content in ((MANIFEST, manifest), *sorted(contents.items())):
                    member = zipfile.ZipInfo(name, _LONG_AGO)
                    archive.writestr(member, content, zipfile.ZIP_DEFLATED)
        except BaseException:
            path.unlink()  # crash: a file without an end, which nobody takes for a bundle
            raise
    return Bundle(run_id, state, len(events), tuple(sorted(files)), _digest(manifest))


def check_bundle(path: Path) -> Bundle:
    """Check a bundle against its manifest, and its journal line by line.

    Raises `JournalCorrupt` for one that was changed, `StoreUnreadable` for a file that is none, `StoreNewer`.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > MAX_BYTES:
                raise _no_bundle(path, f"it holds more than {MAX_BYTES:,} bytes")
            return _check(path, archive)
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise _no_bundle(path, str(error)) from error


def _check(path: Path, archive: zipfile.ZipFile) -> Bundle:
    names = archive.namelist()
    if names.count(MANIFEST) != 1:
        raise _no_bundle(path, f"it has no {MANIFEST}")
    text = archive.read(MANIFEST)
    manifest = _read_manifest(path, text)
    run_id, digests = str(manifest["run_id"]), manifest["files"]
    expected, found = {MANIFEST, *digests}, set(names)
    for name in sorted(expected ^ found):
        raise _changed(path, run_id, f"{name} is {'missing' if name in expected else 'not in its manifest'}")
    if len(names) != len(found):
        raise _changed(path, run_id, "it holds two files of one name")
    for name, digest in digests.items():
        if _digest(archive.read(name)) != digest:
            raise _changed(path, run_id, f"{name} is not the file that was exported")
    events = list(_read_events(path, archive.read(EVENTS), run_id, str(manifest["head"])))
    if len(events) != manifest["events"] or _find_state(events) != manifest["state"]:
        raise _changed(path, run_id, f"{MANIFEST} and {EVENTS} do not say the same")
    return Bundle(run_id, manifest["state"], len(events), tuple(sorted(set(digests) - {EVENTS})), _digest(text))


def _read_manifest(path: Path, text: bytes) -> dict[str, Any]:
    try:
        manifest = json.loads(text)
        version, digests = manifest["format"], manifest["files"]
        is_ours = isinstance(version, int) and isinstance(digests, dict) and EVENTS in digests
        is_ours = is_ours and {"run_id", "state", "events", "head"} <= set(manifest)
    except (ValueError, KeyError, TypeError, RecursionError):
        is_ours = False
    if not is_ours:
        raise _no_bundle(path, f"its {MANIFEST} cannot be read")
    if version > FORMAT:
        raise StoreNewer(f"{path} was exported by a newer holdfast.")
    return dict(manifest)


def _read_events(path: Path, text: bytes, run_id: str, head: str) -> Iterator[Event]:
    at = start = first_position(run_id)
    for after, event in read_lines(run_id, text.splitlines(keepends=True), start):
        at = after
        yield event
    if at.offset != len(text) or at.hash.hex() != head:
        raise _changed(path, run_id, f"{EVENTS} does not end where it did")


def _find_state(events: Sequence[Event]) -> str:
    state = fold(events)
    return "pending" if state is None else str(state.status)


def _to_json(value: object) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _changed(path: Path, run_id: str, reason: str) -> JournalCorrupt:
    message = f"{path}, the bundle of run {run_id!r}, was changed: {reason}."
    return JournalCorrupt(message, hint="Export the run again, or ask for the file again.", run_id=run_id)


def _no_bundle(path: Path, reason: str) -> StoreUnreadable:
    hint = "Name a file that `holdfast export` wrote."
    return StoreUnreadable(f"{path} is no bundle of a run: {reason}.", hint=hint)
