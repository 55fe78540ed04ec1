"""The journal's two threads: one that commits batches, one that notices what other processes commit.

Both are daemons and hold nothing that must be given back: a program that closes nothing still exits.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from holdfast.errors import StoreError
from holdfast.runtime.checkpoint.base import AppendResult, JournalStore

_LOOK_EVERY_S = 1.0
_NAP_S = 0.2  # how soon the thread sees that it is to stop
Outcome = list[AppendResult] | BaseException


class Writer:
    """Commits one batch at a time and reports back to the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[tuple[Callable[[], list[AppendResult]], Callable[[Outcome], None]] | None]
        self._jobs = SimpleQueue()
        threading.Thread(target=self._run, name="holdfast-writer", daemon=True).start()

    def write(self, commit: Callable[[], list[AppendResult]], finish: Callable[[Outcome], None]) -> None:
        self._jobs.put((commit, finish))

    def stop(self) -> None:
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            commit, finish = job
            try:
                outcome: Outcome = commit()
            except BaseException as error:
                outcome = error
            with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits for the answer
                self._loop.call_soon_threadsafe(finish, outcome)
            del job, commit, finish, outcome  # the next job may be long in coming, and these are large


class Watcher:
    """Reports the heads of the watched runs after each commit but those of the journal's own line."""

    def __init__(
        self,
        store: JournalStore,
        loop: asyncio.AbstractEventLoop,
        watched: Callable[[], list[str]],
        report: Callable[[dict[str, int], bool], None],
        own_sender: Callable[[], int | None] = lambda: None,
        hears_all: Callable[[], bool] = lambda: False,
        known_head: Callable[[str], int] = lambda _run_id: 0,
    ) -> None:
        """Call `report` with heads above those known, and whether anything was heard; with `hears_all` of other runs
        too."""
        self._store = store
        self._loop = loop
        self._watched = watched
        self._report = report
        self._own_sender = own_sender
        self._hears_all = hears_all
        self._known_head = known_head
        self._is_stopped = threading.Event()
        self._is_look_due = threading.Event()
        threading.Thread(target=self._run, name="holdfast-watcher", daemon=True).start()

    def look_now(self) -> None:
        """Report the heads once more, even if nothing changes."""
        self._is_look_due.set()

    def stop(self) -> None:
        """End soon: what it waits for now is not worth waiting for, and a closed store ends it too."""
        self._is_stopped.set()

    def _run(self) -> None:
        looked_at = time.monotonic()
        while not self._is_stopped.is_set():
            try:
                is_due = self._is_look_due.is_set() or self._hears_of(self._watched())
                # A notice may be lost: its sender died between the commit and the notice.
                if not is_due and (self._store.is_local or time.monotonic() - looked_at < _LOOK_EVERY_S):
                    continue
                self._is_look_due.clear()
                looked_at = time.monotonic()
                watched = self._watched()  # after the clearing: whoever came while we waited has asked for this look
                heads = self._store.read_heads(watched) if watched else {}
                news = {run_id: head for run_id, head in heads.items() if head > self._known_head(run_id)}
                if news or self._hears_all():  # as a rule it was an own commit, and the loop need not wake up for it
                    self._loop.call_soon_threadsafe(self._report, news, is_due)
            except StoreError:
                self._is_stopped.wait(0.5)  # out of reach for now; what was missed is reported when it is back
                self._is_look_due.set()
            except RuntimeError:
                return  # the loop is gone

    def _hears_of(self, watched: list[str]) -> bool:
        hears_all = self._hears_all()
        if not watched and not hears_all:
            # Nobody is told: a connection that only listens for nobody can be given back.
            return self._is_look_due.wait(_NAP_S)
        of = None if hears_all else set(watched)
        return self._store.wait_for_change(_NAP_S, but_by=self._own_sender(), of=of)
