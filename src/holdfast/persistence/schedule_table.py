"""Rows of the table `schedules`: what is started again and again, and up to which time that was done."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from holdfast.persistence.admission import clock_of
from holdfast.persistence.db import Database
from holdfast.runtime.flow_rows import FIND_OPEN

_COLUMNS = (
    *("name", "target", "kind", "cron", "zone", "missed", "overlap", "repo_path", "options", "is_paused"),
    *("created_at", "created_by", "last_at", "next_at", "last_run_id", "problem"),
    *("problem_at", "skipped", "skipped_for"),
)
_NONE_SKIPPED = "skipped = 0, skipped_for = NULL"
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM schedules"  # noqa: S608 - names of ours


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """What to start, when, and how far it has come. Times are as rows hold them."""

    name: str
    target: str
    """The name of a workflow, or of a flow."""
    kind: str = "workflow"
    cron: str
    zone: str = "UTC"
    missed: str = "skip"
    overlap: str = "skip"
    repo_path: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    is_paused: bool = False
    created_at: str = ""
    created_by: str = ""
    last_at: str = ""
    """All times up to this one are done with: fired or skipped."""
    next_at: str | None = None
    last_run_id: str | None = None
    problem: str | None = None
    """Why a time could not be fired. It stays until a run starts, also when that time was given up."""
    problem_at: str | None = None
    """When that was found the last time."""
    skipped: int = 0
    """How many times were skipped since the last run, each because a run was not over."""
    skipped_for: str | None = None
    """The run that was not over at the last of them."""

    @property
    def is_tried_again(self) -> bool:
        """True while the time that could not be fired is tried again, false once it was given up."""
        return self.problem_at is not None and self.next_at is not None and self.next_at <= self.problem_at


def _to_schedule(row: Any) -> Schedule:
    values = dict(row._mapping)
    return Schedule(**{**values, "options": json.loads(values["options"]), "is_paused": bool(values["is_paused"])})


async def insert_schedule(db: Database, schedule: Schedule) -> bool:
    """Insert a schedule; return false if there is one of this name."""
    marks = ", ".join(f":{name}" for name in _COLUMNS)
    values = {**vars(schedule), "options": json.dumps(schedule.options), "is_paused": int(schedule.is_paused)}
    async with db.session() as session:
        try:
            await session.execute(
                text(f"INSERT INTO schedules ({', '.join(_COLUMNS)}) VALUES ({marks})"),  # noqa: S608 - names of ours
                values,
            )
            await session.commit()
        except IntegrityError:
            return False
    return True


async def list_schedules(db: Database) -> list[Schedule]:
    """List all schedules by name."""
    async with db.session() as session:
        return [_to_schedule(row) for row in await session.execute(text(f"{_SELECT} ORDER BY name"))]


async def find_schedule(db: Database, name: str) -> Schedule | None:
    async with db.session() as session:
        row = (await session.execute(text(f"{_SELECT} WHERE name = :name"), {"name": name})).one_or_none()
        return None if row is None else _to_schedule(row)


async def list_due_schedules(db: Database) -> list[Schedule]:
    """List the schedules whose next time has come, by the database's clock."""
    due = f"{_SELECT} WHERE is_paused = 0 AND next_at <= {clock_of(db).text} ORDER BY next_at, name"
    async with db.session() as session:
        return [_to_schedule(row) for row in await session.execute(text(due))]


async def advance_schedule(
    db: Database, schedule: Schedule, *, last_at: str, next_at: str, run_id: str | None = None, held_by: str = ""
) -> bool:
    """Record that all times up to one are done with, and return true; false if another process has done so.

    The last of them has started the run `run_id`, or was skipped because the run `held_by` is not over, or was missed.
    """
    changes = ["last_at = :last_at", "next_at = :next_at"]
    if run_id is not None:
        changes += ["last_run_id = :run_id", "problem = NULL", "problem_at = NULL", _NONE_SKIPPED]
    elif held_by:
        changes += ["skipped = skipped + 1", "skipped_for = :run_id"]
    change = f"UPDATE schedules SET {', '.join(changes)} WHERE name = :name AND last_at = :before RETURNING name"  # noqa: S608 - ours
    params = {"last_at": last_at, "next_at": next_at, "run_id": run_id or held_by}
    return await _change(db, change, {**params, "name": schedule.name, "before": schedule.last_at})


async def note_problem(db: Database, schedule: Schedule, problem: str) -> None:
    """Record why a schedule could not start the run of its `next_at`, unless another process has got further."""
    change = (
        f"UPDATE schedules SET problem = :problem, problem_at = {clock_of(db).text}, next_at = :next_at "  # noqa: S608 - ours
        "WHERE name = :name AND last_at = :before RETURNING name"
    )
    params = {"name": schedule.name, "before": schedule.last_at, "next_at": schedule.next_at}
    await _change(db, change, {**params, "problem": problem})


async def note_started(db: Database, name: str) -> None:
    """Record that a run was started beside the times: of what was given up or skipped nothing is left to be said."""
    await _change(db, f"UPDATE schedules SET {_NONE_SKIPPED} WHERE name = :name RETURNING name", {"name": name})  # noqa: S608 - ours
    change = "UPDATE schedules SET problem = NULL, problem_at = NULL WHERE name = :name AND next_at > problem_at"
    await _change(db, f"{change} RETURNING name", {"name": name})


async def pause_schedule(db: Database, name: str, *, is_paused: bool, last_at: str, next_at: str) -> bool:
    """Pause a schedule, or let it go on from now on; return false if there is none of this name."""
    change = (
        "UPDATE schedules SET is_paused = :is_paused, last_at = :last_at, next_at = :next_at "
        "WHERE name = :name RETURNING name"
    )
    params = {"name": name, "is_paused": int(is_paused), "last_at": last_at, "next_at": next_at}
    return await _change(db, change, params)


async def delete_schedule(db: Database, name: str) -> bool:
    """Delete a schedule; return false if there is none of this name."""
    return await _change(db, "DELETE FROM schedules WHERE name = :name RETURNING name", {"name": name})


async def _change(db: Database, sql: str, params: Mapping[str, Any]) -> bool:
    async with db.session() as session:
        found = (await session.execute(text(sql), dict(params))).all()
        await session.commit()
        return bool(found)


async def find_unended_run(db: Database, schedule: Schedule, *, but: str) -> str | None:
    """Find a run that a schedule started and that is not over yet, other than this one."""
    if schedule.kind == "flow":
        query, params = FIND_OPEN, {"schedule": schedule.name, "but": but}
    else:
        query = "SELECT id FROM runs WHERE schedule = :name AND id <> :but "
        query += "AND state IN ('pending', 'running', 'paused') ORDER BY created_at LIMIT 1"
        params = {"name": schedule.name, "but": but}
    async with db.session() as session:
        found = await session.scalar(text(query), params)
        return None if found is None else str(found)


async def read_holder(db: Database, schedule: Schedule) -> tuple[str, str | None] | None:
    """Read the state of the run for which times were skipped, and what it waits for; `None` if it is gone."""
    of_flow = "SELECT status, waits_for FROM flow_runs WHERE run_id = :run_id"
    query = of_flow if schedule.kind == "flow" else "SELECT state, pause_reason FROM runs WHERE id = :run_id"
    async with db.session() as session:
        row = (await session.execute(text(query), {"run_id": schedule.skipped_for})).one_or_none()
        return None if row is None else (str(row[0]), row[1])
