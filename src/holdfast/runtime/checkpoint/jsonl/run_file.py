"""The events of one run in one file, shared with other threads and processes.

Rule: the file's end is only believed under the lock on the file itself. A writer holds that lock until its line is
synced, so whatever another one finds after the last newline was left by a writer that died.
"""

import contextlib
import errno
import fcntl
import io
import logging
import os
import random
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

from holdfast.enums import RunStatus
from holdfast.errors import JournalCorrupt, SequenceConflict, StoreBusy, StoreError, StoreFull
from holdfast.runtime.checkpoint.base import Prepared, prepare
from holdfast.runtime.checkpoint.hash_chain import Head, extend
from holdfast.runtime.checkpoint.jsonl.folder import EVENTS, set_touched, sync_data, sync_folder, write_all
from holdfast.runtime.checkpoint.jsonl.line import FilePosition, encode_line, first_position, hash_member, read_lines
from holdfast.runtime.events import Event

_WAIT_S = 30.0
_CREATE_TRIES = 100
_STRIDE_LINES = 128  # reading a tail starts at a mark, so this bounds what is read in vain
_STRIDE_BYTES = 256 * 1024
_BUFFER_BYTES = 256 * 1024
_log = logging.getLogger("holdfast.runtime")
_seq_of = attrgetter("seq")


class RunFile:
    """What this process knows of a run's file, and its open descriptor. Safe under threads; raises `OSError`."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self.lock = threading.RLock()
        self.run_id = run_id
        self.folder = folder
        self.touched_ns = 0  # when this process last wrote to the run
        self._path = folder / EVENTS
        self._fd = -1
        self._can_write = False
        self._positions = [first_position(run_id)]  # the last one is the end as far as it was checked
        self._is_tear_reported = False

    def append(self, prepared: Prepared, touched_ns: int) -> Event:
        with self.locked_for_writing() as fd:
            tail = self._check_end(fd)
            try:
                (row,) = extend(Head(tail.seq, tail.hash, RunStatus.PENDING), [prepared])
            except SequenceConflict:
                if not self._holds(fd, prepared):
                    raise
                sync_data(fd)  # its first writer may have died between writing and syncing
                return prepared.stored_as(prepared.seq)
            line, position = encode_line(tail, self.run_id, row.seq, prepared.content)
            self._write(fd, line, touched_ns)
            self._add_position(position)
            self.touched_ns = touched_ns
            return prepared.stored_as(row.seq)

    def read(self, since_seq: int) -> list[Event]:
        """Read the events after `since_seq`; a file that is not there holds none."""
        try:
            with self._locked(can_write=False) as fd:
                events = self._read(fd, since_seq)
                is_torn = os.fstat(fd).st_size > self._positions[-1].offset
        except FileNotFoundError:
            return []
        if is_torn:
            self._repair_if_allowed()
        return events

    @contextlib.contextmanager
    def locked_for_writing(self) -> Iterator[int]:
        """Hold the run against all other writers and readers; its folder and file are made if need be."""
        with self._locked(can_write=True) as fd:
            if os.fstat(fd).st_size == 0:
                # crash: an empty file is no run. Once it holds a line, its name and its folder's are on the disk.
                sync_folder(self.folder)
                sync_folder(self.folder.parent)
            yield fd

    def forget(self) -> None:
        """Close the file and know nothing of it any more."""
        self.close()
        self._positions = [first_position(self.run_id)]
        self.touched_ns = 0

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def close_if_idle(self) -> bool:
        if not self.lock.acquire(blocking=False):
            return False
        try:
            self.close()
        finally:
            self.lock.release()
        return True

    # -- the lock -----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _locked(self, *, can_write: bool) -> Iterator[int]:
        with self.lock:
            fd = self._acquire(can_write=can_write)
            try:
                yield fd
            finally:
                if self._fd == fd:
                    fcntl.flock(fd, fcntl.LOCK_UN)

    def _acquire(self, *, can_write: bool) -> int:
        while True:
            if self._fd < 0 or (can_write and not self._can_write):
                self._open(can_write=can_write)
            _flock(self._fd, fcntl.LOCK_EX if can_write else fcntl.LOCK_SH, self.run_id)
            if self._is_current():
                return self._fd
            self.close()  # the run was deleted, or its file replaced, since we opened it

    def _open(self, *, can_write: bool) -> None:
        self.close()
        self._fd = _create(self._path) if can_write else os.open(self._path, os.O_RDONLY)
        self._can_write = can_write
        if not self._is_tail_in_file():
            self._positions = [first_position(self.run_id)]

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._fd), self._path.stat())
        except FileNotFoundError:
            return False

    # -- the end of the file, under the lock --------------------------------------------------------------------------

    def _check_end(self, fd: int) -> FilePosition:
        """Check what others have written since, cut a torn tail off, and return the end."""
        size = os.fstat(fd).st_size
        if size != self._positions[-1].offset:
            self._read(fd, self._positions[-1].seq)
            if size > self._positions[-1].offset:
                self._repair(fd, size)
        return self._positions[-1]

    def _read(self, fd: int, since_seq: int) -> list[Event]:
        """Check and decode from the last mark before `since_seq` on; from the start if the marks are of no use."""
        size = os.fstat(fd).st_size
        if size < self._positions[-1].offset:
            _log.warning("journal was cut by another program", extra={"run_id": self.run_id, "size": size})
            self._positions = [first_position(self.run_id)]
        start = self._positions[max(0, bisect_right(self._positions, since_seq, key=_seq_of) - 1)]
        try:
            return self._read_from(fd, start, since_seq)
        except JournalCorrupt:
            if start.offset == 0:
                raise
            self._positions = [first_position(self.run_id)]
            return self._read_from(fd, self._positions[0], since_seq)

    def _read_from(self, fd: int, start: FilePosition, since_seq: int) -> list[Event]:
        if start.offset == os.fstat(fd).st_size:
            return []
        events: list[Event] = []
        with io.FileIO(fd, "rb", closefd=False) as raw, io.BufferedReader(raw, _BUFFER_BYTES) as lines:
            lines.seek(start.offset)
            for position, event in read_lines(self.run_id, lines, start):
                if position.offset > self._positions[-1].offset:
                    self._add_position(position)
                if event.seq > since_seq:
                    events.append(event)
        return events

    def _add_position(self, position: FilePosition) -> None:
        """Move the end of the known file on; of the positions before it, one for each stride stays."""
        if len(self._positions) > 1:
            before = self._positions[-2]
            if position.line - before.line <= _STRIDE_LINES and position.offset - before.offset <= _STRIDE_BYTES:
                self._positions.pop()
        self._positions.append(position)

    def _is_tail_in_file(self) -> bool:
        """Return true if the file, opened anew, still has the end that we know: its last hash is in its place."""
        tail = self._positions[-1]
        end = hash_member(tail.hash) + b"\n"
        start = max(0, tail.offset - len(end))
        return tail.offset == 0 or os.pread(self._fd, len(end), start) == end

    def _holds(self, fd: int, prepared: Prepared) -> bool:
        seq = prepared.seq
        found = next((event for event in self._read(fd, seq - 1) if event.seq == seq), None)
        return found is not None and prepare(found).body == prepared.body

    # -- writing ------------------------------------------------------------------------------------------------------

    def _write(self, fd: int, line: bytes, touched_ns: int) -> None:
        offset = self._positions[-1].offset
        try:
            # crash: from here until the sync the line may be found whole, torn or not at all; nobody was told of it.
            write_all(fd, line, offset)
            set_touched(fd, touched_ns)
            sync_data(fd)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, offset)
                sync_data(fd)
            raise StoreFull(f"{self._path} could not be written: {error.strerror}.") from error

    def _repair(self, fd: int, size: int) -> None:
        """Cut off what a dead writer left behind the last newline; nobody was told that it is there."""
        end = self._positions[-1].offset
        touched_ns = os.fstat(fd).st_mtime_ns
        # crash: the tail is still torn, and the next one to look reports it once more.
        os.ftruncate(fd, end)
        set_touched(fd, touched_ns)
        sync_data(fd)
        self._report_tear(size - end)

    def _repair_if_allowed(self) -> None:
        try:
            with self.locked_for_writing() as fd:
                self._check_end(fd)
        except (OSError, StoreError):
            with self.lock:  # a read-only place: the events before the tear are good all the same
                if not self._is_tear_reported:
                    self._report_tear(None)
                self._is_tear_reported = True

    def _report_tear(self, torn_bytes: int | None) -> None:
        _log.warning("journal ended in a torn line", extra={"run_id": self.run_id, "torn_bytes": torn_bytes})


def _create(path: Path) -> int:
    """Open for reading and writing; a deletion by another process may take the folder away in between, a few times."""
    for _ in range(_CREATE_TRIES):
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))


def _flock(fd: int, kind: int, run_id: str) -> None:
    """Take the lock. Raises `StoreBusy` if another process keeps it for very long."""
    deadline = time.monotonic() + _WAIT_S
    pause_s = 0.0002
    while True:
        try:
            return fcntl.flock(fd, kind | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                raise StoreBusy(f"The lock of run {run_id!r} was not to be had for {_WAIT_S:g} s.") from error
        time.sleep(pause_s * random.uniform(0.5, 1.5))  # noqa: S311 - spreads waiting processes, no secret
        pause_s = min(pause_s * 1.5, 0.01)
