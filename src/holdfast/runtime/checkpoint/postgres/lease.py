"""Keeping the leases of this process's runs: a thread and a connection of its own, which nothing else can hold up.

Rule: a process that has not heard for a while that its leases hold begins nothing new; and one that was cut off itself
takes nothing from others at first, since they may have been cut off with it and live.
"""

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

import psycopg

from holdfast.errors import HoldfastError
from holdfast.runtime.checkpoint.base import Claim
from holdfast.runtime.checkpoint.lease_file import LeaseFile
from holdfast.runtime.checkpoint.postgres.claims import renew
from holdfast.runtime.checkpoint.postgres.session import Session
from holdfast.runtime.clock import elapsed_s

LossListener = Callable[[Claim], None]
_AGAIN_S = 0.25  # after a renewal that failed, or met a row that was locked


class Outages:
    """When this process last found the server out of reach, or much too slow."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._last = float("-inf")

    def note(self) -> None:
        self._last = elapsed_s()

    def note_delay(self, began: float) -> None:
        """Note an answer that took so long that others may have waited for theirs until their leases were over."""
        if elapsed_s() - began > self._lease_s / 3:
            self.note()

    @property
    def is_recent(self) -> bool:
        return elapsed_s() - self._last < self._lease_s


class LeaseKeeper:
    """Renews every claim of the process three times per lease; tells listeners of each that somebody else has taken.

    Its connection is opened for the first renewal, and closed when there is nothing to renew.
    """

    def __init__(self, session: Session, lease_s: float, outages: Outages) -> None:
        self._session = session
        self._lease_s = lease_s
        self._outages = outages
        self._lock = threading.Lock()
        self._claims: dict[str, Claim] = {}
        self._until: dict[str, float] = {}
        """Until when each run is held, as far as is known; also of those that are held for a claim that is to come."""
        self._files: dict[Path, LeaseFile] = {}
        # Weak: the thread must not keep alive whoever has dropped the store, and its claims with it.
        self._listeners: list[weakref.WeakMethod[LossListener]] = []
        self._is_closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._good_until = float("inf")
        self.missed = self.takeovers = 0

    @property
    def is_holding(self) -> bool:
        """True while the leases are known to hold for a while yet."""
        return elapsed_s() < self._good_until

    def add(self, claims: Sequence[Claim], sent_at: float) -> None:
        """Renew these from now on; `sent_at` is when they were claimed, before the answer."""
        with self._lock:
            if not self._claims:
                self._confirm(sent_at)
            self._claims.update({claim.run_id: claim for claim in claims})
            self._note_held([claim.run_id for claim in claims], sent_at + self._lease_s)
            self.takeovers += sum(claim.is_takeover for claim in claims)
            if self._claims and self._thread is None and not self._is_closed.is_set():
                self._thread = threading.Thread(target=self._run, name="holdfast-leases", daemon=True)
                self._thread.start()

    def remove(self, claims: Sequence[Claim]) -> None:
        with self._lock:
            for claim in claims:
                if self._claims.get(claim.run_id) == claim:
                    del self._claims[claim.run_id]
                    self._until.pop(claim.run_id, None)
            self._write_files({claim.run_id for claim in claims})
            if not self._claims:
                self._good_until = float("inf")

    def show(self, folder: Path, run_ids: Sequence[str], *, until: float | None = None) -> None:
        with self._lock:
            if folder not in self._files:
                self._files[folder] = LeaseFile(folder)
            self._files[folder].run_ids.update(run_ids)
            if until is not None:
                self._until.update({run_id: until for run_id in run_ids if run_id not in self._claims})
            self._write_files(set(run_ids))

    def _note_held(self, run_ids: Sequence[str], until: float) -> None:
        self._until.update(dict.fromkeys(run_ids, until))
        self._write_files(set(run_ids))

    def _write_files(self, run_ids: set[str]) -> None:
        """Write the files that show one of these; what is held no more is shown no more."""
        for file in self._files.values():
            if not file.run_ids.isdisjoint(run_ids):
                file.write(self._until)
                file.run_ids.intersection_update(self._until)

    def note_outage(self) -> None:
        self._outages.note()

    def add_listener(self, listener: LossListener) -> None:
        self._listeners.append(weakref.WeakMethod(listener))

    def remove_listener(self, listener: LossListener) -> None:
        self._listeners = [known for known in self._listeners if known() not in (None, listener)]

    def close(self) -> None:
        self._is_closed.set()
        for file in self._files.values():
            file.remove()
        self._session.close(is_waiting=False)

    def _confirm(self, sent_at: float) -> None:
        # A third of the lease is left for whatever begins in the last moment to be recorded as begun.
        self._good_until = sent_at + self._lease_s * 2 / 3

    def _run(self) -> None:
        every_s = self._lease_s / 3
        skipped: list[Claim] = []
        renewed_at = time.monotonic()
        while not self._is_closed.wait(min(_AGAIN_S, every_s / 4) if skipped else every_s):
            with self._lock:
                claims = list(self._claims.values())
                if not claims:
                    self._thread = None
                    break
                # All of them in time, whatever keeps some of them from it.
                is_all = not skipped or time.monotonic() - renewed_at >= every_s
                if not is_all:
                    claims = [claim for claim in skipped if self._claims.get(claim.run_id) == claim]
            if is_all:
                renewed_at = time.monotonic()
            skipped = self._renew(claims, is_all=is_all) if claims else []
        self._session.drop_unused()

    def _renew(self, claims: Sequence[Claim], *, is_all: bool) -> list[Claim]:
        """Renew them; return those that are to be tried again soon.

        With `is_all` it is their time, which was missed if any was not renewed; a try between two such times is none.
        """
        sent_at = elapsed_s()
        try:
            renewed, lost = self._session.run(lambda connection: renew(connection, claims, self._lease_s), patience_s=0)
        except (HoldfastError, psycopg.Error):
            self.missed += is_all
            return list(claims)
        self._outages.note_delay(sent_at)
        with self._lock:
            if self._claims and is_all:
                self._confirm(sent_at)
            still = [claim.run_id for claim in renewed if self._claims.get(claim.run_id) == claim]
            self._note_held(still, sent_at + self._lease_s)
        self.remove(lost)
        for claim in lost:
            for listener in list(self._listeners):
                if (call := listener()) is not None:
                    call(claim)
        skipped = [claim for claim in claims if claim not in renewed and claim not in lost]
        self.missed += bool(skipped and is_all)
        return skipped
