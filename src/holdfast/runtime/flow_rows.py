"""The index of flows: one row per run, changed with the events that start, pause, park, resume and end it.

Rule: a row says when somebody should look at a run, never what is true of it; that is the journal's. `wake_at` is that
moment. A run without one is driven now, or its owner has died (`running`), or it waits for an answer or an event, or it
is over, or it stands in line behind earlier runs of its schedule (`flow_line.py`). Steps leave the row alone.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.enums import PauseReason, RunStatus
from holdfast.errors import JournalCorrupt
from holdfast.runtime.checkpoint.base import FLOW_FORMAT, FlowEnd, JournalStore, Statement
from holdfast.runtime.checkpoint.hash_chain import decode, genesis
from holdfast.runtime.clock import now
from holdfast.runtime.events import Event
from holdfast.runtime.flow_filter import FlowFilter, to_tags_text
from holdfast.runtime.journal import Journal

DEFAULT_QUEUE = "default"
_COLUMNS = (
    "run_id, flow, status, wake_at, waits_for, parent_run_id, queue, priority, tags, created_at, updated_at, "
    "called_up_at, format"
)
_SET = "UPDATE flow_runs SET status = :status, waits_for = :waits_for, updated_at = :now, wake_at = "
_END = f"{_SET} NULL WHERE run_id = :run_id"
# A moment that is there already was set while the run was driven: a child of it is due, and nobody has looked yet.
_WAIT = f"{_SET} coalesce(wake_at, :wake_at) WHERE run_id = :run_id"
_MAKE_DUE = "UPDATE flow_runs SET wake_at = :now, updated_at = :now WHERE"
_PARENTS = (
    "run_id IN (WITH RECURSIVE above (id) AS (SELECT parent_run_id FROM flow_runs WHERE run_id = :run_id "
    "UNION SELECT r.parent_run_id FROM flow_runs AS r JOIN above ON r.run_id = above.id) SELECT id FROM above)"
)
_OPEN = "('pending', 'running', 'paused')"
IN_LINE = "{0}status = 'pending' AND {0}waits_for IS NOT NULL"
OF_SCHEDULE = f"{{0}}schedule IS NOT NULL AND {{0}}status IN {_OPEN}"  # as its index has it
FIND_OPEN = (
    f"SELECT run_id FROM flow_runs WHERE {OF_SCHEDULE.format('')} AND schedule = :schedule AND run_id <> :but "  # noqa: S608 - ours
    "ORDER BY created_at, run_id LIMIT 1"
)
_OPEN_OF_AGE = f"""
SELECT run_id, created_at AS begun_at FROM flow_runs WHERE created_at > :after AND created_at <= :until
AND flow = :flow AND status IN {_OPEN} AND called_up_at IS NULL AND NOT ({IN_LINE.format("")})
UNION ALL SELECT run_id, called_up_at FROM flow_runs WHERE called_up_at > :after AND called_up_at <= :until
AND flow = :flow AND status IN {_OPEN} AND called_up_at IS NOT NULL ORDER BY begun_at, run_id
"""  # noqa: S608 - ours
_UPSERT = f"""
INSERT INTO flow_runs (run_id, flow, status, wake_at, waits_for, schedule, parent_run_id, queue, priority, tags,
                       created_at, updated_at, format)
VALUES (:run_id, :flow, :status, :wake_at, :waits, :schedule, :parent, :queue, :priority, :tags, :now, :now, :format)
ON CONFLICT (run_id) DO UPDATE SET flow = excluded.flow, status = excluded.status, wake_at = excluded.wake_at,
waits_for = excluded.waits_for, updated_at = excluded.updated_at, format = excluded.format, called_up_at = CASE
    WHEN {IN_LINE.format("flow_runs.")} AND excluded.status = 'running' THEN excluded.updated_at
    ELSE flow_runs.called_up_at END
"""  # noqa: S608 - ours
_KNOWN = f"format <= {FLOW_FORMAT}"
_DRIVEN = "status = 'running' AND wake_at IS NULL AND waits_for IS NULL"


@dataclass(frozen=True)
class FlowRow:
    """One flow run as it is listed."""

    run_id: str
    flow: str
    status: str
    wake_at: float | None
    waits_for: str | None
    parent_run_id: str | None
    """The run that drives it, if another flow has started it as its child; no runtime takes such a run by itself."""
    queue: str
    priority: int
    tags: Mapping[str, str]
    created_at: float
    updated_at: float
    called_up_at: float | None = None
    """When its turn came, if it has stood in line behind others of its schedule."""
    format: int = FLOW_FORMAT

    @property
    def begun_at(self) -> float:
        """The moment from which its time counts: what it has stood in line is no time of its own."""
        return now() if self.is_in_line else self.called_up_at or self.created_at

    @property
    def is_in_line(self) -> bool:
        return self.status == RunStatus.PENDING and self.waits_for is not None

    @property
    def is_parked(self) -> bool:
        """True if it waits for a time or an event, and no process holds it."""
        return self.status == RunStatus.RUNNING and (self.wake_at is not None or self.waits_for is not None)

    @property
    def is_driven(self) -> bool:
        """True if a process drives it, or did when it died."""
        return self.status == RunStatus.RUNNING and self.wake_at is None and self.waits_for is None

    @property
    def is_due(self) -> bool:
        return self.wake_at is not None and self.wake_at <= now()


@dataclass(frozen=True)
class FlowLook:
    """A row, and of a run that nobody has begun or owns what is needed to begin it."""

    row: FlowRow
    created: Event | None = None
    """The only event of its journal."""
    epoch: int = 0
    head_hash: bytes = b""


@dataclass(frozen=True)
class FlowOptions:
    """What is told when a flow is started, for those who bring it to a worker."""

    queue: str = DEFAULT_QUEUE
    priority: int = 0
    tags: Mapping[str, str] | None = None
    parent_run_id: str | None = None
    schedule: str | None = None
    """The schedule that has started it."""
    is_in_line: bool = False
    """It is due when no earlier run of its schedule is open."""

    @classmethod
    def of(cls, origin: Mapping[str, Any]) -> "FlowOptions":
        """Read the options out of what a run's first event says of where it comes from."""
        parent, tags = origin.get("parent"), origin.get("tags")
        return cls(
            tags=tags if isinstance(tags, dict) else None,
            parent_run_id=parent.get("run_id") if isinstance(parent, dict) else None,
        )


def rows_of(journal: Journal, row: Statement) -> list[Statement]:
    """Return a row change to be written with events, or nothing where the store holds no rows."""
    return [row] if journal.store.has_rows else []


def created(run_id: str, flow: str, options: FlowOptions) -> Statement:
    """Make a run due from now on that nobody drives yet, or let it stand in line behind others of its schedule."""
    return _upsert(run_id, flow, RunStatus.PENDING, options, wake_at=None if options.is_in_line else now())


def started(run_id: str, flow: str, options: FlowOptions) -> Statement:
    """Note that the owner drives the run from now on; what an earlier row says of the run's options stays."""
    return _upsert(run_id, flow, RunStatus.RUNNING, options)


def _upsert(
    run_id: str, flow: str, status: RunStatus, options: FlowOptions, *, wake_at: float | None = None
) -> Statement:
    tags = to_tags_text(options.tags or {})
    name = (options.schedule or "").removeprefix("@")
    params: dict[str, Any] = {
        "waits": f"earlier runs of schedule {name}" if options.is_in_line else None,
        "schedule": options.schedule,
        "parent": options.parent_run_id,
        "queue": options.queue,
        "priority": options.priority,
        "tags": tags,
        "format": FLOW_FORMAT,
        "now": now(),
    }
    params |= {"run_id": run_id, "flow": flow, "status": status.value, "wake_at": wake_at}
    return Statement(_UPSERT, params, is_of_one_row=True)


def paused(run_id: str, waits_for: str, *, wake_at: float | None = None) -> Statement:
    """Note that a run waits for a person; the answer makes it due, or the moment when it is too late for one."""
    change = {**_to_change(run_id, RunStatus.PAUSED, waits_for), "wake_at": wake_at}
    return Statement(_WAIT, change, None, is_of_one_row=True)


def ended(run_id: str, status: RunStatus) -> Statement:
    return FlowEnd(_END, _to_change(run_id, status, None), None, is_of_one_row=True)


def parked(run_id: str, *, wake_at: float | None, waits_for: str, head: int) -> Statement:
    """Note that a run waits without a process. Refused if anything was written after `head`: it may be what it waits
    for."""
    return Statement(
        f"{_WAIT} AND (SELECT max(seq) FROM events WHERE run_id = :run_id) = :head",  # noqa: S608 - ours
        {**_to_change(run_id, RunStatus.RUNNING, waits_for), "wake_at": wake_at, "head": head},
    )


def _to_change(run_id: str, status: RunStatus, waits_for: str | None) -> dict[str, Any]:
    return {"run_id": run_id, "status": status.value, "waits_for": waits_for, "now": now()}


def due(run_id: str) -> Statement:
    """Make a run that waits due now, with the runs that wait for it: for whoever has written what it waits for.

    One that is driven sees it itself, in its own journal; the runs above it look into another one, so they are marked.
    One that stands in line sees it when its turn comes.
    """
    waits = f"NOT ({_DRIVEN}) AND NOT ({IN_LINE.format('')})"
    return Statement(
        f"{_MAKE_DUE} status IN {_OPEN} AND ((run_id = :run_id AND {waits}) OR {_PARENTS})",
        {"run_id": run_id, "now": now()},
        None,
    )


def reopened(run_id: str) -> Statement:
    """Make a run due that has failed, for another try."""
    return Statement(
        f"{_SET} :now WHERE run_id = :run_id AND status = 'failed'", _to_change(run_id, RunStatus.PENDING, None), None
    )


def abandoned(run_id: str) -> Statement:
    """Make a run due that its owner gives up in the middle, so that another takes it at once."""
    return Statement(f"{_MAKE_DUE} run_id = :run_id AND {_DRIVEN}", {"run_id": run_id, "now": now()}, None)


# -- reading ----------------------------------------------------------------------------------------------------------


def read_due(store: JournalStore, flows: Collection[str], *, limit: int) -> list[FlowRow]:
    """Read the runs of these flows that are due, the most urgent first; none that is left to newer versions."""
    names, params = _to_parameters(flows)
    return _read(
        store,
        f"WHERE wake_at <= :now AND parent_run_id IS NULL AND {_KNOWN} AND flow IN ({names}) "
        "ORDER BY priority DESC, wake_at, run_id LIMIT :limit",
        {**params, "now": now(), "limit": limit},
    )


def read_interrupted(store: JournalStore, flows: Collection[str], *, but: Collection[str]) -> list[FlowRow]:
    """Read the runs of these flows that should be driven and have no living owner; those in `but` are not looked at."""
    names, params = _to_parameters(flows)
    rows = [
        row
        for row in _read(store, f"WHERE {_DRIVEN} AND parent_run_id IS NULL AND {_KNOWN} AND flow IN ({names})", params)
        if row.run_id not in but
    ]
    owned = store.find_owned([row.run_id for row in rows]) if rows else set()
    return [row for row in rows if row.run_id not in owned]


def read_next_wake(store: JournalStore, flows: Collection[str]) -> float | None:
    """Read when the next of the runs of these flows is due that are not yet."""
    names, params = _to_parameters(flows)
    found = store.read_rows(
        "SELECT min(wake_at) FROM flow_runs "  # noqa: S608 - ours
        f"WHERE wake_at > :after AND parent_run_id IS NULL AND {_KNOWN} AND flow IN ({names})",
        {**params, "after": now()},
    )
    return found[0][0] if found else None


def count_by_status(store: JournalStore) -> dict[str, int]:
    return dict(store.read_rows("SELECT status, count(*) FROM flow_runs GROUP BY status", {}))


def read_row(store: JournalStore, run_id: str) -> FlowRow | None:
    rows = _read(store, "WHERE run_id = :run_id", {"run_id": run_id})
    return rows[0] if rows else None


_LOOK = """
SELECT {columns}, j.epoch, j.head_hash, e.type, e.body, e.hash FROM flow_runs AS f
LEFT JOIN journal_runs AS j ON j.run_id = f.run_id AND j.head = 1 AND j.owner IS NULL AND f.status = 'pending'
LEFT JOIN events AS e ON e.run_id = j.run_id AND e.seq = 1 WHERE f.run_id IN ({run_ids})
"""


def read_looks(store: JournalStore, run_ids: Collection[str]) -> dict[str, FlowLook]:
    """Look at runs: their rows, and how those stand that nobody has begun."""
    names, params = _to_parameters(run_ids)
    columns = ", ".join(f"f.{name}" for name in _COLUMNS.split(", "))
    found = (_to_look(row) for row in store.read_rows(_LOOK.format(columns=columns, run_ids=names), params))
    return {look.row.run_id: look for look in found}


def _to_look(row: Sequence[Any]) -> FlowLook:
    *values, epoch, head_hash, kind, body, event_hash = row
    look = FlowLook(_to_row(values))
    if epoch is None or event_hash is None or head_hash != event_hash:
        return look
    try:
        run_id = look.row.run_id
        stored = (1, kind, body.encode(), bytes(event_hash))
        (created,), _ = decode(run_id, [stored], genesis(run_id), _read_no_blobs)
    except (_HasBlobs, JournalCorrupt):
        return look  # whoever claims and reads it sees all of it
    return FlowLook(look.row, created, epoch, bytes(head_hash))


class _HasBlobs(Exception):
    pass


def _read_no_blobs(_digests: set[str]) -> Mapping[str, bytes]:
    raise _HasBlobs


def read_page(
    store: JournalStore,
    matching: FlowFilter,
    *,
    limit: int,
    after: tuple[float, str | None] | None = None,
    is_oldest_first: bool = False,
) -> list[FlowRow]:
    """Read runs, newest first, that come after the one with this time of creation and id.

    Without an id they come after that moment: those created at it are among them.
    """
    sign, order = (">", "ASC") if is_oldest_first else ("<", "DESC")
    where, params = matching.to_sql()
    if after is not None:
        at, run_id = after
        where += f" AND created_at {sign}= :at" if run_id is None else f" AND (created_at, run_id) {sign} (:at, :id)"
        params |= {"at": at} if run_id is None else {"at": at, "id": run_id}
    rest = f"WHERE {where} ORDER BY created_at {order}, run_id {order} LIMIT :limit"
    return _read(store, rest, {**params, "limit": limit})


def read_crashing(store: JournalStore, *, limit: int) -> list[FlowRow]:
    """Read the runs that were paused because they kill whoever drives them, the newest first."""
    where = "WHERE status = 'paused' AND waits_for = :reason ORDER BY updated_at DESC, run_id LIMIT :limit"
    return _read(store, where, {"reason": PauseReason.CRASHING.value, "limit": limit})


def read_open(store: JournalStore) -> list[FlowRow]:
    """Read the runs that may ask a person something: those that have begun and are not over, the oldest first."""
    return _read(store, "WHERE status IN ('running', 'paused') ORDER BY created_at, run_id", {})


def read_over(
    store: JournalStore, *, created_until: float, after: tuple[float, str] | None, limit: int
) -> list[FlowRow]:
    """Read runs that are over, the one that changed last first, that come after the one with this time and id."""
    where = "status IN ('completed', 'failed', 'cancelled') AND created_at <= :until"
    params: dict[str, Any] = {"until": created_until, "limit": limit}
    if after is not None:
        where += " AND (updated_at, run_id) < (:at, :id)"
        params |= {"at": after[0], "id": after[1]}
    return _read(store, f"WHERE {where} ORDER BY updated_at DESC, run_id DESC LIMIT :limit", params)


def read_last_ids(store: JournalStore, flow: str, *, prefix: str) -> list[str]:
    """Read the ids that begin so of the runs of a flow that were created last, the newest first."""
    rows = store.read_rows(
        "SELECT run_id FROM flow_runs WHERE flow = :flow AND substr(run_id, 1, length(:prefix)) = :prefix "
        "ORDER BY created_at DESC LIMIT 20",
        {"flow": flow, "prefix": prefix},
    )
    return [run_id for (run_id,) in rows]


def read_open_of_age(store: JournalStore, flow: str, *, begun_after: float, begun_until: float) -> list[str]:
    """Read the ids of the runs of a flow that are not over and whose time began between two moments, the oldest first.

    It begins when a run is created, or if it has stood in line, when it is called up.
    """
    rows = store.read_rows(_OPEN_OF_AGE, {"flow": flow, "after": begun_after, "until": begun_until})
    return [run_id for run_id, _ in rows]


def find_open(store: JournalStore, schedule: str, *, but: str) -> str | None:
    """Find a run of a schedule that is not over, other than this one."""
    rows = store.read_rows(FIND_OPEN, {"schedule": schedule, "but": but})
    return str(rows[0][0]) if rows else None


def find_answered(store: JournalStore, run_ids: Sequence[str]) -> set[str]:
    """Find which of these runs have an answer of a person."""
    names, params = _to_parameters(run_ids)
    rows = store.read_rows(
        f"SELECT DISTINCT run_id FROM events WHERE run_id IN ({names}) AND type = 'human.approval.received'",  # noqa: S608 - ours
        params,
    )
    return {run_id for (run_id,) in rows}


def _read(store: JournalStore, rest: str, params: Mapping[str, Any]) -> list[FlowRow]:
    rows = store.read_rows(f"SELECT {_COLUMNS} FROM flow_runs {rest}", params)  # noqa: S608 - parts are ours
    return [_to_row(row) for row in rows]


def _to_row(row: Sequence[Any]) -> FlowRow:
    columns = dict(zip(_COLUMNS.split(", "), row, strict=True))
    return FlowRow(**{**columns, "tags": json.loads(columns["tags"])})


def _to_parameters(names: Collection[str]) -> tuple[str, dict[str, Any]]:
    params = {f"flow_{index}": name for index, name in enumerate(sorted(names))}
    return ", ".join(f":{name}" for name in params) or "NULL", params
