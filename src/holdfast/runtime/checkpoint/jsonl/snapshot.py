"""The snapshot of a run beside its events: replaced atomically, the one before it kept as the backup.

The hash covers version, number and state, so that a half or changed file is never taken for a state. A file that is a
state and nothing around it comes from a person or another tool: it is accepted.
"""

import hashlib
import logging
from pathlib import Path

import msgspec

from holdfast.errors import JournalCorrupt, PayloadInvalid
from holdfast.runtime.checkpoint.jsonl.folder import BACKUP, SNAPSHOT, link_or_rename, sync_folder, write_synced
from holdfast.runtime.jsondata import from_json
from holdfast.runtime.state import RunState

_VERSION = 1
_log = logging.getLogger("holdfast.runtime")


class _StoredSnapshot(msgspec.Struct):
    version: int
    seq: int
    hash: str
    state: msgspec.Raw


_decode = msgspec.json.Decoder(_StoredSnapshot).decode


def write_snapshot(folder: Path, body: bytes, *, seq: int, touched_ns: int) -> None:
    """Replace the snapshot by an encoded state. The caller holds the run's lock. Raises `OSError`."""
    stored = _StoredSnapshot(_VERSION, seq, _hash(_VERSION, seq, body), msgspec.Raw(body))
    draft = folder / f"{SNAPSHOT}.new"
    write_synced(draft, msgspec.json.encode(stored), touched_ns=touched_ns)
    # crash: a draft is left behind, which nobody reads and the next snapshot overwrites.
    if _is_good(folder / SNAPSHOT):
        _keep_as_backup(folder)
    # crash: snapshot and backup are the same state, the one before this.
    draft.replace(folder / SNAPSHOT)
    # crash: the old or the new snapshot is found, each of them whole.
    sync_folder(folder)


def _keep_as_backup(folder: Path) -> None:
    second_name = folder / f"{BACKUP}.new"
    second_name.unlink(missing_ok=True)
    link_or_rename(folder / SNAPSHOT, second_name)
    second_name.replace(folder / BACKUP)
    second_name.unlink(missing_ok=True)  # replacing one name of a file by another of the same file does nothing


def read_snapshot(folder: Path, run_id: str) -> RunState | None:
    """Read the latest state, else the one before it with a warning. Raises `JournalCorrupt` if both are damaged."""
    damage: list[str] = []
    for name in (SNAPSHOT, BACKUP):
        try:
            state = _decode_state((folder / name).read_bytes())
        except FileNotFoundError:
            continue
        except (PayloadInvalid, TypeError, ValueError, RecursionError) as error:
            damage.append(f"{name}: {error}")
            continue
        if damage:
            _log.warning("snapshot is damaged, using its backup", extra={"run_id": run_id, "damage": damage[0]})
        return state
    if damage:
        raise JournalCorrupt(
            f"The snapshot of run {run_id!r} is damaged and so is its backup ({'; '.join(damage)}).",
            hint="The events are not affected: delete both files and the state is folded from the journal.",
            run_id=run_id,
        )
    return None


def _is_good(path: Path) -> bool:
    """Return false for a missing or damaged file, which must not replace a good backup."""
    try:
        _read_body(path.read_bytes())
    except (OSError, ValueError):
        return False
    return True


def _decode_state(text: bytes) -> RunState:
    return RunState.from_json(_read_body(text))


def _read_body(text: bytes) -> bytes:
    if _is_plain_state(text):
        return text
    stored = _decode(text)
    body = bytes(stored.state)
    if stored.version != _VERSION or stored.hash != _hash(stored.version, stored.seq, body):
        raise ValueError("its content does not match its hash")
    return body


def _is_plain_state(text: bytes) -> bool:
    content = from_json(text)
    return isinstance(content, dict) and "run_id" in content and "state" not in content


def _hash(version: int, seq: int, body: bytes) -> str:
    return hashlib.sha256(b"%d %d %s" % (version, seq, body)).hexdigest()
