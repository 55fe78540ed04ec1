"""Owners of runs on Postgres: taken, prolonged and given up by rows, by the server's clock alone.

Rule: the epoch is the fence and never wrong; owner and lease only decide whether a takeover is polite.
"""

from collections.abc import Callable, Sequence

from psycopg.types.numeric import Int8

from holdfast.enums import RunStatus
from holdfast.errors import HoldfastError, RunBusy
from holdfast.runtime.checkpoint import process_owner
from holdfast.runtime.checkpoint.base import FLOW_FORMAT, MOST_TAKEOVERS, Claim, Opening
from holdfast.runtime.checkpoint.hash_chain import Head, extend
from holdfast.runtime.checkpoint.postgres.schema import Connection
from holdfast.runtime.checkpoint.postgres.transaction import PostgresTx
from holdfast.runtime.clock import now


def take_over(
    tx: PostgresTx, run_ids: Sequence[str], owner: process_owner.Owner, *, force: bool, is_patient: Callable[[], bool]
) -> dict[str, Claim | HoldfastError]:
    """Become the owner of every run that has no living one.

    `is_patient` says that owners whose leases are over may live all the same: they were cut off as we were.
    """
    heads = tx.lock_heads(run_ids)
    results: dict[str, Claim | HoldfastError] = {}
    owners = _read_owners(tx.connection, run_ids, tx.lease_s, sync=tx.sync)
    left = {run_id: takeovers for run_id, _, _, takeovers in owners if not force}
    for run_id, found, is_current, takeovers in owners:
        if found == owner.to_text():  # an earlier try was written and its answer lost
            is_takeover = heads[run_id].seq in takeovers[-1:]
            results[run_id] = Claim(run_id, heads[run_id].epoch, heads[run_id].seq, is_takeover, takeovers)
        elif not force and (is_current or is_patient()) and (living := _living(found)):
            results[run_id] = RunBusy(f"Run {run_id!r} is being driven by {living}.", run_id=run_id)
    free = {run_id: head for run_id, head in heads.items() if run_id not in results}
    tx.connection.execute(
        "UPDATE journal_runs SET epoch = epoch + 1, owner = %s, "
        "lease_until = clock_timestamp() + make_interval(secs => %s), "
        "takeovers = CASE WHEN run_id = ANY(%b) THEN (coalesce(takeovers, '{}') || head)"
        "[greatest(1, coalesce(cardinality(takeovers), 0) + 2 - %s):] ELSE takeovers END WHERE run_id = ANY(%b)",
        (owner.to_text(), float(tx.lease_s), list(left), MOST_TAKEOVERS, list(free)),
    )
    return results | {
        run_id: Claim(run_id, head.epoch + 1, head.seq, True, (*left[run_id], head.seq)[-MOST_TAKEOVERS:])
        if run_id in left
        else Claim(run_id, head.epoch + 1, head.seq)
        for run_id, head in free.items()
    }


def begin_flows(connection: Connection, openings: Sequence[Opening], owner: str, lease_s: float) -> dict[str, Head]:
    """Become the owner of those flows that are as they were read, and write that they are begun; returns their heads.

    One statement: what was changed since, or is being changed, is left out, and nothing is waited for.
    """
    openings = list({one.run_id: one for one in openings}.values())
    heads = {one.run_id: Head(one.head, one.head_hash, RunStatus.PENDING, one.epoch + 1) for one in openings}
    rows = [extend(heads[one.run_id], [one.first])[0] for one in openings]
    found = connection.execute(
        _BEGIN,
        {
            "run_ids": list(heads),
            "epochs": [Int8(one.epoch) for one in openings],
            "befores": [Int8(one.head) for one in openings],
            "heads": [Int8(row.seq) for row in rows],
            "hashes": [row.hash for row in rows],
            "kinds": [row.kind for row in rows],
            "bodies": [row.body.decode() for row in rows],
            "status": str(RunStatus.RUNNING),
            "now": now(),
            "format": FLOW_FORMAT,
            "owner": owner,
            "lease_s": float(lease_s),
        },
        prepare=True,
    ).fetchall()
    return {run_id: heads[run_id] for (run_id,) in found}


_BEGIN = """
WITH n AS (
    SELECT * FROM unnest(%(run_ids)b::text[], %(epochs)b::bigint[], %(befores)b::bigint[], %(heads)b::bigint[],
        %(hashes)b::bytea[], %(kinds)b::text[], %(bodies)b::text[]) AS n (run_id, epoch, before, head, hash, type, body)
), locked AS MATERIALIZED (
    SELECT r.run_id FROM journal_runs AS r JOIN n USING (run_id)
    WHERE r.epoch = n.epoch AND r.head = n.before AND r.owner IS NULL ORDER BY r.run_id FOR UPDATE OF r SKIP LOCKED
), begun AS (
    UPDATE flow_runs AS f SET status = %(status)s, wake_at = NULL, waits_for = NULL, updated_at = %(now)s,
        format = %(format)s
    FROM locked WHERE f.run_id = locked.run_id AND f.status = 'pending' RETURNING f.run_id
), moved AS (
    UPDATE journal_runs AS r SET epoch = r.epoch + 1, owner = %(owner)s, head = n.head, head_hash = n.hash,
        status = %(status)s, touched = nextval('journal_touched'),
        lease_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
    FROM n JOIN begun USING (run_id) WHERE r.run_id = n.run_id
), written AS (
    INSERT INTO events (run_id, seq, type, body, hash)
    SELECT n.run_id, n.head, n.type, n.body, n.hash FROM n JOIN begun USING (run_id)
)
SELECT run_id FROM begun
"""


def find_living(connection: Connection, run_ids: Sequence[str], lease_s: float) -> set[str]:
    """Find the runs whose owner has a lease and is not known to be dead."""
    owners = _read_owners(connection, run_ids, lease_s)
    return {run_id for run_id, found, is_current, _ in owners if is_current and _living(found)}


def _read_owners(
    connection: Connection, run_ids: Sequence[str], lease_s: float, *, sync: Callable[[], None] | None = None
) -> list[tuple[str, str, bool, tuple[int, ...]]]:
    # A lease that ended while the server was away, or soon after, could not be renewed in time: it gets one more. Not
    # if the clock has been set back to before the server's start, where all of that would hold for as long.
    cursor = connection.execute(
        "SELECT run_id, owner, lease_until > clock_timestamp() "
        "OR (lease_until < pg_postmaster_start_time() + make_interval(secs => %s) "
        "AND clock_timestamp() BETWEEN pg_postmaster_start_time() "
        "AND pg_postmaster_start_time() + make_interval(secs => %s)), coalesce(takeovers, '{}') "
        "FROM journal_runs WHERE run_id = ANY(%b) AND owner IS NOT NULL AND lease_until IS NOT NULL",
        (lease_s / 2, float(lease_s), list(run_ids)),
    )
    if sync is not None:
        sync()
    return [(row[0], row[1], row[2], tuple(row[3])) for row in cursor.fetchall()]


def _living(text: str) -> str | None:
    owner = process_owner.from_text(text)
    if owner is None:
        return "an owner of another version"
    return None if process_owner.is_dead(owner) else str(owner)


def renew(connection: Connection, claims: Sequence[Claim], lease_s: float) -> tuple[list[Claim], list[Claim]]:
    """Prolong the lease of those claims that are still the current ones; return these, and those that are lost.

    A row that someone has locked is in neither: all others would lose their leases while it is waited for.
    """
    # After a crash of the server a renewal may be missing, as if it had not been made: it waits for no disk.
    rows = connection.execute(
        "WITH off AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)), "
        "c AS MATERIALIZED (SELECT c.* FROM unnest(%b::text[], %b::bigint[]) AS c (run_id, epoch), off), "
        "free AS (SELECT r.run_id FROM journal_runs AS r JOIN c USING (run_id) "
        "WHERE r.epoch = c.epoch AND r.owner IS NOT NULL ORDER BY r.run_id FOR UPDATE OF r SKIP LOCKED), "
        "renewed AS (UPDATE journal_runs AS r "
        "SET lease_until = clock_timestamp() + make_interval(secs => %s) FROM free WHERE r.run_id = free.run_id "
        "RETURNING r.run_id) "
        "SELECT c.run_id, renewed.run_id IS NOT NULL, r.owner IS NULL OR r.epoch <> c.epoch "
        "FROM c LEFT JOIN renewed USING (run_id) LEFT JOIN journal_runs AS r USING (run_id)",
        (*_columns(claims), float(lease_s)),
    ).fetchall()
    by_id = {claim.run_id: claim for claim in claims}
    renewed = [by_id[run_id] for run_id, is_renewed, _ in rows if is_renewed]
    return renewed, [by_id[run_id] for run_id, is_renewed, is_lost in rows if is_lost and not is_renewed]


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
