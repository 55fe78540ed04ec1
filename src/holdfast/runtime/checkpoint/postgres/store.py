"""Journals in a Postgres database, for many machines: every commit synced, owners with a lease, connections that heal.

Rule: other processes write at any moment, so numbers, heads and epochs are only believed while their rows are locked;
and an answer can be lost, so whatever is tried again first finds out what the earlier try has done.
"""

import contextlib
import hashlib
import os
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, TypeVar

import psycopg

from holdfast.errors import HoldfastError, JournalCorrupt, StoreError
from holdfast.runtime.checkpoint import process_owner
from holdfast.runtime.checkpoint.base import Append, AppendResult, Claim, Opening, Statement, check_run_id, prepare
from holdfast.runtime.checkpoint.hash_chain import corrupt, decode, genesis
from holdfast.runtime.checkpoint.postgres.append import AppendAttempt, KnownHeads, append_locked
from holdfast.runtime.checkpoint.postgres.claims import begin_flows, find_living, release, renew, take_over
from holdfast.runtime.checkpoint.postgres.lease import LeaseKeeper, Outages
from holdfast.runtime.checkpoint.postgres.listen import ChangeListener
from holdfast.runtime.checkpoint.postgres.notices import NoticeSender
from holdfast.runtime.checkpoint.postgres.pipeline import PostgresPipeline
from holdfast.runtime.checkpoint.postgres.schema import Connection
from holdfast.runtime.checkpoint.postgres.server_clock import ServerClock
from holdfast.runtime.checkpoint.postgres.session import LOCK_WAIT_S, Session, connect, parse_url, to_store_error
from holdfast.runtime.checkpoint.postgres.transaction import (
    PostgresTx,
    delete_run,
    read_blobs,
    read_in_transaction,
    to_postgres,
    write_in_transaction,
)
from holdfast.runtime.clock import elapsed_s
from holdfast.runtime.events import Event
from holdfast.runtime.state import RunState

_T = TypeVar("_T")
_IDLE_S = 10.0  # the next use opens one again
_stores: "weakref.WeakSet[PostgresCheckpointer]" = weakref.WeakSet()
_keep_alive: list[Any] = []


class PostgresCheckpointer:
    """A `JournalStore` in a database that many machines share; an empty database is a new store."""

    is_local = False
    has_rows = True

    def __init__(
        self, url: str, *, lease_s: float = 6.0, patience_s: float = 20.0, owner_patience_s: float = 120.0
    ) -> None:
        """Open or create the store; a server that is away later is waited for, `patience_s` at most.

        What the owner of a run has to record waits `owner_patience_s`: it may have been paid for.

        Raises `StoreUnavailable`, `StoreUnreadable`, `StoreNewer`.
        """
        self._target = parse_url(url)
        self.label = self._target.label
        self.lease_s = lease_s
        self.owner_patience_s = owner_patience_s
        self._claims: dict[Claim, str] = {}
        self._released: set[tuple[str, int]] = set()
        """Runs and epochs that were given up with their last append, of which nobody has said yet that it is over."""
        self._outages = Outages(lease_s)
        self._writer, self._reader, self._listening, self._noticing, self._leasing = (
            Session(self._target, lease_s=lease_s, patience_s=patience_s, on_loss=self._outages.note) for _ in range(5)
        )
        self._known = KnownHeads()
        self._pipelines: weakref.WeakSet[PostgresPipeline] = weakref.WeakSet()
        self._start_helpers()
        self._clock = ServerClock()
        try:
            self._clock.go_by(self._writer.open())
        except psycopg.Error as error:
            raise to_store_error(error, self._target.label) from error
        _stores.add(self)

    def _start_helpers(self) -> None:
        self._listener = ChangeListener(self._listening)
        self._notices = NoticeSender(self._noticing)
        self.leases = LeaseKeeper(self._leasing, self.lease_s, self._outages)

    # -- Checkpointer -------------------------------------------------------------------------------------------------

    def save_event(self, event: Event) -> Event:
        prepared = prepare(event)
        (result,) = self.append([Append(event.run_id, [prepared])])
        if isinstance(result, HoldfastError):
            raise result
        return prepared.stored_as(result[0])

    def save_snapshot(self, run_id: str, state: RunState) -> None:
        check_run_id(run_id)
        body = state.to_json()

        def save(tx: PostgresTx) -> None:
            tx.lock_heads([run_id])
            tx.connection.execute(
                "INSERT INTO snapshots (run_id, seq, body, hash) VALUES (%s, %s, %s, %b) ON CONFLICT (run_id) "
                "DO UPDATE SET seq = excluded.seq, body = excluded.body, hash = excluded.hash",
                (run_id, state.last_seq, body.decode(), hashlib.sha256(body).digest()),
            )
            tx.connection.execute(
                "UPDATE journal_runs SET touched = nextval('journal_touched') WHERE run_id = %s", (run_id,)
            )

        self._write(save)

    def load_latest(self, run_id: str) -> RunState | None:
        check_run_id(run_id)
        found = self._read(
            lambda connection: connection.execute(
                "SELECT convert_to(body, 'UTF8'), hash FROM snapshots WHERE run_id = %s", (run_id,), binary=True
            ).fetchone(),
            run_id,
        )
        if found is None:
            return None
        if hashlib.sha256(found[0]).digest() != found[1]:
            raise JournalCorrupt(f"The snapshot of run {run_id!r} is damaged.", run_id=run_id)
        return RunState.from_json(found[0])

    def list_events(self, run_id: str, since_seq: int = 0) -> list[Event]:
        check_run_id(run_id)
        return self._read(
            lambda connection: read_in_transaction(connection, lambda: _read_events(connection, run_id, since_seq)),
            run_id,
        )

    def list_runs(self) -> list[str]:
        rows = self._read(
            lambda connection: connection.execute(
                "SELECT run_id FROM journal_runs AS r WHERE head > 0 "
                "OR EXISTS (SELECT 1 FROM snapshots AS s WHERE s.run_id = r.run_id) ORDER BY touched DESC"
            ).fetchall()
        )
        return [row[0] for row in rows]

    def delete_run(self, run_id: str, *, claim: Claim | None = None, rows: Sequence[Statement] = ()) -> None:
        check_run_id(run_id)
        self._write(lambda tx: delete_run(tx, run_id, claim, rows))

    def close(self) -> None:
        """Give up every claim and connection; a server that is away is not waited for."""
        if self._writer.is_usable() and self._claims:
            with contextlib.suppress(HoldfastError, psycopg.Error):
                self._write(lambda tx: release(tx, list(self._claims)), patience_s=0)
        self.leases.close()
        self._forget_claims()
        self._notices.close()
        for pipeline in self._pipelines:
            pipeline.is_lost = True  # closed by whoever uses it: no other thread may touch its connection
        for session in (self._writer, self._reader):
            session.close()
        self._listening.close(is_waiting=False)

    def give_back(self, idle_s: float = _IDLE_S) -> None:
        """Close the connections that were not used for a while; the next use opens them again."""
        for session in (self._writer, self._reader):
            session.drop_idle(idle_s)
        self._listener.give_back(idle_s)

    def __del__(self) -> None:
        try:
            if not sys.is_finalizing():
                self.close()
                return
            # A thread that was ended with the interpreter keeps its locks for ever.
            for session in (self._writer, self._reader):
                session.drop()
        except Exception:  # noqa: S110 - nobody is left to hear it
            pass

    # -- JournalStore -------------------------------------------------------------------------------------------------

    def claim(self, run_id: str, *, force: bool = False) -> Claim:
        (result,) = self.claim_many([run_id], force=force)
        if isinstance(result, HoldfastError):
            raise result
        return result

    def claim_many(
        self, run_ids: Sequence[str], *, force: bool = False, wait_s: float = LOCK_WAIT_S
    ) -> list[Claim | HoldfastError]:
        results: dict[str, Claim | HoldfastError] = {}
        for run_id in run_ids:
            try:
                check_run_id(run_id)
            except HoldfastError as error:
                results[run_id] = error
        if self._clock.is_old():
            self._read(self._clock.go_by)
        owner = process_owner.new_owner()
        valid_ids = [run_id for run_id in dict.fromkeys(run_ids) if run_id not in results]
        sent_at = elapsed_s()

        def claim(tx: PostgresTx) -> dict[str, Claim | HoldfastError]:
            return take_over(tx, valid_ids, owner, force=force, is_patient=is_patient)

        def is_patient() -> bool:
            self._outages.note_delay(sent_at)
            return self._outages.is_recent

        try:
            results |= self._write(claim, wait_s=wait_s)
        except BaseException:
            process_owner.forget(owner.token)
            raise
        self._own([result for result in results.values() if isinstance(result, Claim)], owner, sent_at)
        self._forget_unless_used(owner.token)
        return [results[run_id] for run_id in run_ids]

    def begin_many(self, openings: Sequence[Opening]) -> list[Claim | None]:
        if self._clock.is_old():
            self._read(self._clock.go_by)
        owner, sent_at = process_owner.new_owner(), elapsed_s()
        try:
            # Not tried again: what the answer of is lost has an owner that is forgotten, and is claimed as such.
            heads = self._writer.run(
                lambda connection: begin_flows(connection, openings, owner.to_text(), self.lease_s), patience_s=0
            )
            claims = {run_id: Claim(run_id, head.epoch, head.seq) for run_id, head in heads.items()}
            self._own(list(claims.values()), owner, sent_at)
            self._known.remember(heads)
        finally:
            self._forget_unless_used(owner.token)
        self._notices.note(claims)
        return [claims.get(opening.run_id) for opening in openings]

    def _own(self, claims: Sequence[Claim], owner: process_owner.Owner, sent_at: float) -> None:
        self._claims.update(dict.fromkeys(claims, owner.token))
        self._known.own(claim.run_id for claim in claims)
        if claims:
            self.leases.add(claims, sent_at)

    def release(self, claim: Claim) -> None:
        self.release_many([claim])

    def release_many(self, claims: Sequence[Claim]) -> None:
        self._disown(claims)
        self._write(lambda tx: release(tx, claims))

    def _disown(self, claims: Sequence[Claim]) -> None:
        self.leases.remove(claims)
        for claim in claims:
            if claim in self._claims:
                self._known.disown(claim.run_id)
            self._forget_unless_used(self._claims.pop(claim, ""))

    def forget(self, claim: Claim) -> bool:
        is_released = (claim.run_id, claim.epoch) in self._released
        if is_released:
            self._released.discard((claim.run_id, claim.epoch))
            self._disown([claim])
        return is_released

    def _note_released(self, batch: Sequence[Append], results: Sequence[AppendResult]) -> None:
        for append, result in zip(batch, results, strict=True):
            if append.is_last and append.epoch is not None and isinstance(result, list):
                self._released.add((append.run_id, append.epoch))

    def renew(self, claims: Sequence[Claim]) -> None:
        """Prolong these leases now; a thread of the store does so by itself, three times per lease."""
        if claims:
            self._leasing.run(lambda connection: renew(connection, claims, self.lease_s))

    def append(self, batch: Sequence[Append], *, wait_s: float = LOCK_WAIT_S) -> list[AppendResult]:
        """Append as `JournalStore` says. If the connection breaks, it is found out whether the batch was written.

        Raises `StoreError` and its kinds if that could not be found out in time; the fact `may_be_written` says so.
        """
        return self._append(AppendAttempt(batch, wait_s))

    def _append(self, attempt: AppendAttempt) -> list[AppendResult]:
        is_owned = any(append.epoch is not None for append in attempt.batch)
        try:
            results = self._writer.run(
                lambda connection: append_locked(connection, attempt, self._known, lease_s=self.lease_s),
                patience_s=self.owner_patience_s if is_owned else None,
            )
            # crash: nobody is told; readers look by the clock too.
            self._notices.note(attempt.run_ids)
            self._note_released(attempt.batch, results)
            return results
        except StoreError as error:
            error.facts["may_be_written"] = attempt.sent is not None
            raise

    def open_pipeline(self) -> PostgresPipeline:
        try:
            connection = connect(self._target, self.lease_s)
            pipeline = PostgresPipeline(
                *(connection, self._known, self._append, self.lease_s),
                on_written=self._notices.note,
                on_released=self._note_released,
            )
        except psycopg.Error as error:
            raise to_store_error(error, self._target.label) from error
        self._pipelines.add(pipeline)
        return pipeline

    def read_heads(self, run_ids: Sequence[str]) -> dict[str, int]:
        rows = self._read(
            lambda connection: connection.execute(
                "SELECT run_id, head FROM journal_runs WHERE run_id = ANY(%b)", (list(run_ids),)
            ).fetchall()
        )
        return dict(rows)

    def read_rows(self, sql: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return self._read(lambda connection: connection.execute(to_postgres(sql), params).fetchall())

    def find_owned(self, run_ids: Sequence[str]) -> set[str]:
        return self._read(lambda connection: find_living(connection, run_ids, self.lease_s))

    def wait_for_change(self, timeout_s: float, *, but_by: int | None = None, of: Set[str] | None = None) -> bool:
        try:
            return self._listener.wait(timeout_s, but_by, of)
        except psycopg.Error as error:
            raise to_store_error(error, self._target.label) from error

    # -- inside -------------------------------------------------------------------------------------------------------

    def _write(
        self,
        work: Callable[[PostgresTx], _T],
        *,
        wait_s: float = LOCK_WAIT_S,
        patience_s: float | None = None,
    ) -> _T:
        """Run `work` in one synced transaction; on any error nothing of it remains. It may be called several times."""
        return self._writer.run(
            lambda connection: write_in_transaction(connection, work, lease_s=self.lease_s, wait_s=wait_s),
            patience_s=patience_s,
        )

    def _read(self, work: Callable[[Connection], _T], run_id: str | None = None) -> _T:
        return self._reader.run(work, run_id=run_id)

    def _forget_unless_used(self, token: str) -> None:
        if token not in self._claims.values():
            process_owner.forget(token)

    def _forget_claims(self) -> None:
        for token in self._claims.values():
            process_owner.forget(token)
        self._claims.clear()

    def detach_after_fork(self) -> None:
        """Leave connections and claims to the parent, in a forked child."""
        self._claims, self._released = {}, set()
        self._known = KnownHeads()
        for pipeline in self._pipelines:
            pipeline.detach_after_fork(_keep_alive)
        for session in (self._writer, self._reader, self._listening, self._noticing, self._leasing):
            session.detach_after_fork(_keep_alive)
        self._start_helpers()


def _read_events(connection: Connection, run_id: str, since_seq: int) -> list[Event]:
    found = connection.execute("SELECT head, head_hash FROM journal_runs WHERE run_id = %s", (run_id,))
    before = connection.execute(
        "SELECT hash FROM events WHERE run_id = %s AND seq <= %s ORDER BY seq DESC LIMIT 1", (run_id, since_seq)
    )
    rows = connection.execute(
        "SELECT seq, type, convert_to(body, 'UTF8'), hash FROM events WHERE run_id = %s AND seq > %s ORDER BY seq",
        (run_id, since_seq),
        binary=True,
    )
    events, last_hash = decode(
        run_id,
        rows,
        next(before, (genesis(run_id),))[0],
        lambda digests: read_blobs(connection, digests),
    )
    head, head_hash = next(found, (0, b""))
    if head > since_seq and (not events or events[-1].seq < head):
        raise corrupt(run_id, head, "the journal ends before it")
    if events and events[-1].seq == head and head_hash not in (b"", last_hash):
        raise corrupt(run_id, head, "the chain of hashes ends elsewhere")
    return events


def _forget_in_child() -> None:
    for store in list(_stores):
        store.detach_after_fork()


os.register_at_fork(after_in_child=_forget_in_child)
