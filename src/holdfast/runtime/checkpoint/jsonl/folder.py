"""The folder of a JSONL store: which names runs may have, its format version, and making it last.

Rule: a name survives a power cut only once its folder is synced, so that happens before anything is written under it.
"""

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from holdfast.errors import RunIdInvalid, StoreError, StoreFull, StoreNewer, StoreUnreadable
from holdfast.runtime.checkpoint.base import check_run_id
from holdfast.runtime.checkpoint.private_files import make_private_folder

FORMAT_VERSION = 1
EVENTS, SNAPSHOT, BACKUP = "events.jsonl", "snapshot.json", "snapshot.backup.json"
_RESERVED = ".holdfast-"
_FORMAT = _RESERVED + "format"
_DELETED = _RESERVED + "deleted-"
_FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}

sync_data = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


def check_folder_name(run_id: object) -> str:
    """Return a run id that is one plain path component. Raises `RunIdInvalid`."""
    name = check_run_id(run_id)
    if name in (".", "..") or "/" in name or "\\" in name:
        raise RunIdInvalid(f"The run id {name!r} is not one plain path component.")
    if len(name.encode()) > 255:
        raise RunIdInvalid(f"The run id has {len(name.encode())} bytes; a file name has at most 255.")
    if name.startswith(_RESERVED):
        raise RunIdInvalid(f"Run ids that start with {_RESERVED!r} are reserved for the store's own files.")
    return name


@contextlib.contextmanager
def as_store_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise to_store_error(error, path) from error


def to_store_error(error: OSError, path: Path) -> StoreError:
    if error.errno in _FULL:
        return StoreFull(f"{path} could not be written: {error.strerror}.")
    return StoreUnreadable(f"{path} cannot be used as a store: {error.strerror}.")


def check_format(base_dir: Path) -> bool:
    """Return true if the store says that it is of this version, false if it says nothing. Raises `StoreNewer`."""
    path = base_dir / _FORMAT
    with as_store_errors(path):
        try:
            text = path.read_bytes().strip()
        except FileNotFoundError:
            if base_dir.exists() and not base_dir.is_dir():
                raise StoreUnreadable(f"{base_dir} is not a folder.") from None
            return False
    if not text.isdigit():
        raise StoreUnreadable(f"{path} holds no version number.")
    if int(text) > FORMAT_VERSION:
        raise StoreNewer(
            f"{base_dir} has store version {int(text)}; this holdfast knows versions up to {FORMAT_VERSION}."
        )
    return True


def make_store(base_dir: Path) -> None:
    """Create the folder and say which format it has; many processes may do so at once."""
    if check_format(base_dir):
        return
    path = base_dir / _FORMAT
    draft = base_dir / f"{_FORMAT}-{secrets.token_hex(8)}"
    with as_store_errors(base_dir):
        make_private_folder(base_dir)
        sync_folder(base_dir.resolve().parent)
        try:
            write_synced(draft, b"%d\n" % FORMAT_VERSION)
            # crash: the store has no version yet, and the next writer gives it one; runs are as they were.
            with contextlib.suppress(FileExistsError):
                link_or_rename(draft, path)
        finally:
            draft.unlink(missing_ok=True)
        sync_folder(base_dir)
    check_format(base_dir)


def write_synced(path: Path, text: bytes, *, touched_ns: int | None = None) -> None:
    """Write a file anew and sync it; on any error it is gone again."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        write_all(fd, text, 0)
        if touched_ns is not None:
            set_touched(fd, touched_ns)
        os.fsync(fd)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)


def link_or_rename(source: Path, target: Path) -> None:
    """Give a file a second name; where the file system has none to give, its only one. Raises `FileExistsError`."""
    try:
        target.hardlink_to(source)
    except FileExistsError:
        raise
    except OSError:
        source.rename(target)


def write_all(fd: int, text: bytes, offset: int) -> None:
    rest = memoryview(text)
    while rest:
        written = os.pwrite(fd, rest, offset)
        rest, offset = rest[written:], offset + written


def set_touched(fd: int, touched_ns: int) -> None:
    """Set when a run was written: the file's own time is too coarse to tell two runs apart. Whoever may not set it
    does without."""
    with contextlib.suppress(OSError):
        os.utime(fd, ns=(touched_ns, touched_ns))


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def move_away(base_dir: Path, run_id: str) -> None:
    """Make a run's folder no run any more, in one step."""
    # crash: before the rename the run is whole; after it, gone. What is left of it goes with the next deletion.
    (base_dir / run_id).rename(base_dir / f"{_DELETED}{secrets.token_hex(8)}")
    sync_folder(base_dir)


def remove_deleted(base_dir: Path) -> None:
    for folder in base_dir.glob(f"{_DELETED}*"):
        shutil.rmtree(folder, ignore_errors=True)


def find_runs(base_dir: Path) -> Iterator[tuple[str, int]]:
    """Find every run with an event or a snapshot, and when it was last written (ns)."""
    try:
        entries = list(os.scandir(base_dir))
    except FileNotFoundError:
        return
    for entry in entries:
        with contextlib.suppress(RunIdInvalid, NotADirectoryError):
            touched_ns = _find_touched(base_dir / check_folder_name(entry.name))
            if touched_ns is not None:
                yield entry.name, touched_ns


def _find_touched(folder: Path) -> int | None:
    times = []
    for name in (EVENTS, SNAPSHOT, BACKUP):
        with contextlib.suppress(FileNotFoundError):
            found = (folder / name).stat()
            if name != EVENTS or (found.st_size and _has_line(folder / name)):
                times.append(found.st_mtime_ns)
    return max(times, default=None)


def _has_line(path: Path) -> bool:
    with path.open("rb") as file:
        return file.readline().endswith(b"\n")
