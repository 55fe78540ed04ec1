"""Owners of runs on Postgres: taken, prolonged and given up by rows, by the server's clock alone.

Rule: the epoch is the fence and never wrong; owner and lease only decide whether a takeover is polite.
"""

from collections.abc import Sequence

from psycopg.types.numeric import Int8

from holdfast.errors import HoldfastError, RunBusy
from holdfast.runtime.checkpoint import process_owner
from holdfast.runtime.checkpoint.base import Claim
from holdfast.runtime.checkpoint.postgres.transaction import PostgresTx


def take_over(
    tx: PostgresTx, run_ids: Sequence[str], owner: process_owner.Owner, *, force: bool
) -> dict[str, Claim | HoldfastError]:
    """Become the owner of every run that has no living one."""
    heads = tx.lock_heads(run_ids)
    results: dict[str, Claim | HoldfastError] = {}
    for run_id, found in _read_owners(tx, run_ids):
        if found == owner.to_text():  # an earlier try was written and its answer lost
            results[run_id] = Claim(run_id, heads[run_id].epoch, heads[run_id].seq)
        elif not force and (living := _living(found)):
            results[run_id] = RunBusy(f"Run {run_id!r} is being driven by {living}.", run_id=run_id)
    free = {run_id: head for run_id, head in heads.items() if run_id not in results}
    tx.connection.execute(
        "UPDATE journal_runs SET epoch = epoch + 1, owner = %s, "
        "lease_until = clock_timestamp() + make_interval(secs => %s) WHERE run_id = ANY(%b)",
        (owner.to_text(), float(tx.lease_s), list(free)),
    )
    return results | {run_id: Claim(run_id, head.epoch + 1, head.seq) for run_id, head in free.items()}


def _read_owners(tx: PostgresTx, run_ids: Sequence[str]) -> list[tuple[str, str]]:
    cursor = tx.connection.execute(
        "SELECT run_id, owner FROM journal_runs "
        "WHERE run_id = ANY(%b) AND owner IS NOT NULL AND lease_until > clock_timestamp()",
        (list(run_ids),),
    )
    return [(row[0], row[1]) for row in cursor.fetchall()]


def _living(text: str) -> str | None:
    owner = process_owner.from_text(text)
    if owner is None:
        return "an owner of another version"
    return None if process_owner.is_dead(owner) else str(owner)


def renew(tx: PostgresTx, claims: Sequence[Claim]) -> None:
    """Prolong the lease of those claims that are still the current ones."""
    # A row that someone has locked is left out, or all others would lose their leases while it is waited for.
    tx.connection.execute(
        "WITH free AS (SELECT r.run_id FROM journal_runs AS r "
        "JOIN unnest(%b::text[], %b::bigint[]) AS c (run_id, epoch) USING (run_id) "
        "WHERE r.epoch = c.epoch AND r.owner IS NOT NULL ORDER BY r.run_id FOR UPDATE OF r SKIP LOCKED) "
        "UPDATE journal_runs AS r SET lease_until = clock_timestamp() + make_interval(secs => %s) "
        "FROM free WHERE r.run_id = free.run_id",
        (*_columns(claims), float(tx.lease_s)),
    )


def release(tx: PostgresTx, claims: Sequence[Claim]) -> None:
    """Give up those claims that are still the current ones."""
    # An UPDATE alone would lock in the order of its plan, and could meet an append that locks in the order of run ids.
    tx.connection.execute(
        "SELECT 1 FROM journal_runs WHERE run_id = ANY(%b) ORDER BY run_id FOR UPDATE",
        ([claim.run_id for claim in claims],),
    )
    tx.connection.execute(
        "UPDATE journal_runs AS r SET owner = NULL, lease_until = NULL "
        "FROM unnest(%b::text[], %b::bigint[]) AS c (run_id, epoch) WHERE r.run_id = c.run_id AND r.epoch = c.epoch",
        _columns(claims),
    )


def _columns(claims: Sequence[Claim]) -> tuple[list[str], list[Int8]]:
    return [claim.run_id for claim in claims], [Int8(claim.epoch) for claim in claims]
