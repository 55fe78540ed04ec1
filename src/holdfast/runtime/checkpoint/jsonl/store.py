"""Journals in plain files that people and other tools can read: a folder per run, a line per event.

Rule: files are shared with other processes, so every operation goes through the lock of its run's file.
"""

import os
import sys
import threading
import weakref
from collections import OrderedDict
from pathlib import Path

from holdfast.errors import StoreUnreadable
from holdfast.runtime.checkpoint.append import Clock
from holdfast.runtime.checkpoint.base import prepare
from holdfast.runtime.checkpoint.jsonl.folder import (
    as_store_errors,
    check_folder_name,
    check_format,
    find_runs,
    make_store,
    move_away,
    remove_deleted,
)
from holdfast.runtime.checkpoint.jsonl.run_file import RunFile
from holdfast.runtime.checkpoint.jsonl.snapshot import read_snapshot, write_snapshot
from holdfast.runtime.events import Event
from holdfast.runtime.state import RunState

_MAX_OPEN = 64  # file descriptors; a process often may have no more than 1,024
_MAX_KNOWN = 4096  # files whose end is remembered, so that appending does not read them again

_stores: "weakref.WeakSet[JSONLCheckpointer]" = weakref.WeakSet()


class JSONLCheckpointer:
    """A `Checkpointer` in `base_dir/<run_id>/`: `events.jsonl`, `snapshot.json` and `snapshot.backup.json`."""

    def __init__(self, base_dir: str | Path) -> None:
        """Open the store; the folder is made by the first write. Raises `StoreUnreadable`, `StoreNewer`."""
        self.base_dir = Path(base_dir).absolute()  # the process may change its folder
        self._is_made = check_format(self.base_dir)
        self._clock = Clock()
        self._is_closed = False
        self.forget_files()
        _stores.add(self)

    def save_event(self, event: Event) -> Event:
        check_folder_name(event.run_id)
        prepared = prepare(event)
        with as_store_errors(self.base_dir):
            return self._open_for_writing(event.run_id).append(prepared, self._tick())

    def save_snapshot(self, run_id: str, state: RunState) -> None:
        check_folder_name(run_id)
        body = state.to_json()
        with as_store_errors(self.base_dir):
            file = self._open_for_writing(run_id)
            with file.locked_for_writing():
                touched_ns = self._tick()
                write_snapshot(file.folder, body, seq=state.last_seq, touched_ns=touched_ns)
                file.touched_ns = touched_ns

    def load_latest(self, run_id: str) -> RunState | None:
        check_folder_name(run_id)
        self._check_open()
        with as_store_errors(self.base_dir):
            return read_snapshot(self.base_dir / run_id, run_id)

    def list_events(self, run_id: str, since_seq: int = 0) -> list[Event]:
        check_folder_name(run_id)
        with as_store_errors(self.base_dir):
            return self._open(run_id).read(since_seq)

    def list_runs(self) -> list[str]:
        self._check_open()
        with as_store_errors(self.base_dir):
            found = list(find_runs(self.base_dir))
        # A run that this process wrote is at least as new as this process knows, however coarse the files' times are.
        with self._lock:
            known = {run_id: file.touched_ns for run_id, file in self._known.items()}
        touched_ns = {run_id: max(at_ns, known.get(run_id, 0)) for run_id, at_ns in found}
        return sorted(touched_ns, key=lambda run_id: touched_ns[run_id], reverse=True)

    def delete_run(self, run_id: str) -> None:
        check_folder_name(run_id)
        with as_store_errors(self.base_dir):
            file = self._open(run_id)
            if not file.folder.is_dir():
                return
            with file.locked_for_writing():
                move_away(self.base_dir, run_id)
                file.forget()
            remove_deleted(self.base_dir)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            files = list(self._known.values())
        for file in files:
            with file.lock:
                file.close()

    def forget_files(self) -> None:
        """Start with no file open: in a new store, and in a forked child, which must not share its parent's locks."""
        self._lock = threading.Lock()
        self._known: OrderedDict[str, RunFile] = OrderedDict()
        self._opened: OrderedDict[str, RunFile] = OrderedDict()

    def __del__(self) -> None:
        try:
            if not sys.is_finalizing():  # a thread that was ended with the interpreter keeps its locks for ever
                self.close()
        except Exception:  # noqa: S110 - nobody is left to hear it
            pass

    # -- inside -------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreUnreadable(f"The store {self.base_dir} is closed.", hint="Open a new one.")

    def _tick(self) -> int:
        with self._lock:
            return self._clock.tick()

    def _open_for_writing(self, run_id: str) -> RunFile:
        self._check_open()
        if not self._is_made:
            make_store(self.base_dir)
            self._is_made = True
        return self._open(run_id)

    def _open(self, run_id: str) -> RunFile:
        with self._lock:
            self._check_open()
            file = self._known.get(run_id)
            if file is None:
                file = self._known[run_id] = RunFile(self.base_dir / run_id, run_id)
            self._known.move_to_end(run_id)
            self._opened[run_id] = file
            self._opened.move_to_end(run_id)
            _trim(self._opened, _MAX_OPEN)
            _trim(self._known, _MAX_KNOWN)
            return file


def _trim(files: OrderedDict[str, RunFile], limit: int) -> None:
    """Close the files that were not used for the longest time; those in use just now stay."""
    for _ in range(len(files) - limit):
        run_id, file = files.popitem(last=False)
        if not file.close_if_idle():
            files[run_id] = file


def _forget_in_child() -> None:
    for store in list(_stores):
        for file in list(store._known.values()):
            file.close()
        store.forget_files()


os.register_at_fork(after_in_child=_forget_in_child)
