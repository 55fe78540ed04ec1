"""Schedules: which times are due, and that each starts one run, whoever fires it and whatever dies meanwhile.

Rule: the id of a run follows from its schedule and its time. So whoever fires a time again, after a crash or beside
another process, finds the run there; the row that says how far a schedule has come only saves looking.
"""

import asyncio
import contextlib
import logging
import re
import socket
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, get_args

from holdfast.concurrency import cancel_within
from holdfast.config import Config
from holdfast.engine.run.create import RunOrder
from holdfast.engine.workflow_engine import WorkflowEngine
from holdfast.errors import (
    HoldfastError,
    QueueUnknown,
    RunBusy,
    RunNotInState,
    ScheduleInvalid,
    ScheduleNotFound,
)
from holdfast.flows.service.cron import CronLine
from holdfast.flows.service.flow_schedule import GRACE, Missed, Overlap, choose_times
from holdfast.persistence.admission import read_clock
from holdfast.persistence.db import Database
from holdfast.persistence.schedule_table import (
    Schedule,
    advance_schedule,
    delete_schedule,
    find_schedule,
    find_unended_run,
    insert_schedule,
    list_due_schedules,
    note_problem,
    note_started,
    pause_schedule,
    read_holder,
)
from holdfast.persistence.statements import to_time_text
from holdfast.presentation.schedule_status import describe_skips
from holdfast.readiness import AgreedDefinitions
from holdfast.runtime.flow_rows import DEFAULT_QUEUE, FlowOptions
from holdfast.workflow import WorkflowTemplate
from holdfast.workspace import find_start
from holdfast.workspace.transfer.remotes import to_folder

MISSED, OVERLAP, KINDS = get_args(Missed), get_args(Overlap), ("workflow", "flow")
_NAMESPACE = uuid.UUID("6b1d1f5e-0d0b-4f55-9a43-5d4c8b2f7a10")
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}")
_TRY_AGAIN_S = 30.0
_MOST_AT_ONCE = 8
_CLOSE_S = 1.0
_log = logging.getLogger("holdfast.fleet")


class EngineSource(Protocol):
    """Makes engines for repositories, with what they bring along and a person agreed to."""

    async def check_trust(
        self,
        repo: Path | None,
        name_or_file: str,
        *,
        is_simulated: bool,
        overrides: Mapping[str, str],
        is_elsewhere: bool = False,
    ) -> tuple[WorkflowTemplate, AgreedDefinitions]: ...

    async def for_repository(
        self, repo: Path | None, *, is_simulated: bool = False, agreed: AgreedDefinitions | None = None
    ) -> WorkflowEngine: ...


def run_id_of(name: str, at: str) -> str:
    """Return the id of the run that a schedule starts at a time."""
    return str(uuid.uuid5(_NAMESPACE, f"{name} {at}"))


def check_schedule(config: Config, schedule: Schedule) -> CronLine:
    """Check what a person wrote, and return its times. Raises `ScheduleInvalid`, `QueueUnknown`."""
    if not _NAME.fullmatch(schedule.name):
        hint = "Use letters, digits, dots, dashes and underscores, up to 100."
        raise ScheduleInvalid(f"{schedule.name!r} is no name for a schedule.", hint=hint)
    words = {
        "missed": (schedule.missed, MISSED),
        "overlap": (schedule.overlap, OVERLAP),
        "kind": (schedule.kind, KINDS),
    }
    for word, (value, known) in words.items():
        if value not in known:
            raise ScheduleInvalid(f"{word} is one of {', '.join(known)}, not {value!r}.", hint="")
    queue = schedule.options.get("queue")
    if queue and queue not in config.queues:
        raise QueueUnknown(
            f"There is no queue {queue!r}.", hint=f"The setting `queues` has {', '.join(config.queues)}."
        )
    return CronLine(schedule.cron, schedule.zone)


async def check_runs(config: Config, engines: EngineSource, schedule: Schedule) -> WorkflowTemplate | None:
    """Raise what would refuse each run of a workflow's schedule; return the workflow.

    What a folder below `shared_roots` holds that is not here is known only where it fires, and nothing is returned: all
    machines that drive runs see it, the one that adds the schedule need not.
    """
    options, repo = schedule.options, to_folder(schedule.repo_path)
    if repo is not None:
        if not repo.exists() and any(repo.is_relative_to(root) for root in config.shared_roots):
            return None
        await asyncio.to_thread(find_start, repo, options.get("base_branch"))
    is_simulated, overrides = bool(options.get("simulate")), options.get("persona_overrides") or {}
    template, agreed = await engines.check_trust(
        repo, schedule.target, is_simulated=is_simulated, overrides=overrides, is_elsewhere=True
    )
    engine = await engines.for_repository(repo, is_simulated=is_simulated, agreed=agreed)
    await engine.check(
        template,
        repo_path=schedule.repo_path,
        base_branch=options.get("base_branch"),
        persona_overrides=overrides,
        budget_usd=options.get("budget_usd"),
    )
    return template


async def add_schedule(db: Database, config: Config, schedule: Schedule) -> Schedule:
    """Check and store a schedule; it counts from now on. Raises as `check_schedule` does, with nothing written."""
    cron = check_schedule(config, schedule)
    now = await read_clock(db)
    next_at = to_time_text(cron.next_after(_to_moment(now)))
    stored = replace(schedule, created_at=now, last_at=now, next_at=next_at)
    if not await insert_schedule(db, stored):
        hint = f"Remove it first: holdfast schedule remove {schedule.name}"
        raise ScheduleInvalid(f"There is a schedule {schedule.name!r} already.", hint=hint)
    return stored


async def get_schedule(db: Database, name: str) -> Schedule:
    """Read a schedule. Raises `ScheduleNotFound`."""
    if (found := await find_schedule(db, name)) is None:
        raise ScheduleNotFound(f"There is no schedule {name!r}.")
    return found


async def hold_schedule(db: Database, name: str, *, is_paused: bool) -> Schedule:
    """Pause a schedule, or let it go on with the next time from now. Raises `ScheduleNotFound`."""
    found = await get_schedule(db, name)
    now = await read_clock(db)
    next_at = to_time_text(CronLine(found.cron, found.zone).next_after(_to_moment(now)))
    await pause_schedule(db, name, is_paused=is_paused, last_at=now, next_at=next_at)
    return await get_schedule(db, name)


async def remove_schedule(db: Database, name: str) -> None:
    """Remove a schedule; its runs stay. Raises `ScheduleNotFound`."""
    if not await delete_schedule(db, name):
        raise ScheduleNotFound(f"There is no schedule {name!r}.")


async def explain_skips(db: Database, schedule: Schedule) -> str | None:
    """Tell how many times were skipped since the last run, and for which run; `None` if none was."""
    return describe_skips(schedule, await read_holder(db, schedule)) if schedule.skipped else None


async def start_now(db: Database, engines: EngineSource, name: str, *, by: str) -> str:
    """Start a run of a schedule beside its times and return its id. Raises as `start_scheduled`, `ScheduleNotFound`."""
    run_id = str(uuid.uuid4())
    await start_scheduled(db, engines, await get_schedule(db, name), run_id, by=by)
    await note_started(db, name)
    return run_id


async def start_scheduled(
    db: Database, engines: EngineSource, schedule: Schedule, run_id: str, *, by: str = ""
) -> None:
    """Write the run of a schedule under an id; one that is there already is left as it is.

    Raises what keeps a run from being made, and `RunBusy` if another process is just making it.
    """
    options = schedule.options
    if schedule.kind == "flow":
        await _start_flow(db, schedule, run_id)
        return
    repo = to_folder(schedule.repo_path)
    is_simulated, overrides = bool(options.get("simulate")), options.get("persona_overrides") or {}
    template, agreed = await engines.check_trust(
        repo, schedule.target, is_simulated=is_simulated, overrides=overrides, is_elsewhere=True
    )
    engine = await engines.for_repository(repo, is_simulated=is_simulated, agreed=agreed)
    order = RunOrder(options.get("queue") or "", options.get("priority") or 0, schedule=schedule.name)
    # crash: a run that is there was written before, and the schedule not advanced.
    with contextlib.suppress(RunNotInState):
        await engine.create(
            template,
            repo_path=schedule.repo_path,
            base_branch=options.get("base_branch"),
            requirements_md=options.get("requirements_md") or "",
            pre_allocated_run_id=run_id,
            persona_overrides=overrides,
            budget_usd=options.get("budget_usd"),
            title=options.get("title") or "",
            started_by=by or schedule.created_by,
            order=order,
        )


class ScheduleClock:
    """Fires what is due, in any number of processes at once.

    Schedules are started beside each other: one whose repository is on a server that says nothing keeps no other from
    its time. One whose start is under way is not started again by this process.
    """

    def __init__(self, db: Database, engines: EngineSource, *, worker: str = "") -> None:
        """Take the name by which `holdfast workers` lists this process as `worker`; without one its machine counts."""
        self._db = db
        self._engines = engines
        self._place = f"Worker {worker}" if worker else f"Server on {socket.gethostname()}"
        self._not_before: dict[str, float] = {}
        self._last_took_s: dict[str, float] = {}
        self._under_way: dict[str, asyncio.Task[int]] = {}
        # What a network holds up must not take the places of what is on this machine.
        self._places = {is_remote: asyncio.Semaphore(_MOST_AT_ONCE) for is_remote in (False, True)}

    async def fire_due(self, *, patience_s: float | None = None) -> int:
        """Start a run for each time that has come, by the database's clock, and return how many were started.

        What cannot be started is recorded at its schedule and tried again. What takes longer than `patience_s` goes on
        after the return, and is counted by a later call, until `close`.
        """
        count = await self._collect()
        for schedule in await list_due_schedules(self._db):
            if schedule.name in self._under_way or self._not_before.get(schedule.name, 0.0) > time.monotonic():
                continue
            self._not_before.pop(schedule.name, None)
            firing = self._fire_in_turn(schedule, since=time.monotonic())
            self._under_way[schedule.name] = asyncio.create_task(firing, name=f"holdfast-schedule-{schedule.name}")
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=patience_s)
        return count + await self._collect()

    async def _collect(self) -> int:
        """Count the runs of what has ended since the last call. Raises what a schedule's problem could not be."""
        ended = [self._under_way.pop(name) for name, task in list(self._under_way.items()) if task.done()]
        outcomes = await asyncio.gather(*ended, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return sum(count for count in outcomes if isinstance(count, int))

    async def close(self) -> None:
        """Give up what is under way. # crash: what it has started is found by its id."""
        await cancel_within(list(self._under_way.values()), _CLOSE_S)

    async def _fire_in_turn(self, schedule: Schedule, *, since: float) -> int:
        """Fire a schedule that is due, when there is a place for it.

        A time that came while it waited for that, or while its own last one was being started, was not missed.
        """
        async with self._places[to_folder(schedule.repo_path) is None]:
            busy_s = time.monotonic() - since + self._last_took_s.pop(schedule.name, 0.0)
            try:
                return await self._fire(schedule, grace=GRACE + timedelta(seconds=busy_s))
            except RunBusy:
                return 0  # another process is just at it
            except Exception as error:
                await self._give_notice(schedule, error)
                return 0
            finally:
                self._last_took_s[schedule.name] = time.monotonic() - since

    async def _fire(self, schedule: Schedule, *, grace: timedelta) -> int:
        cron = CronLine(schedule.cron, schedule.zone)
        now = _to_moment(await read_clock(self._db))
        tried = _to_moment(str(schedule.next_at)) if schedule.is_tried_again else None
        after = _to_moment(schedule.last_at)
        times = choose_times(cron, after=after, now=now, missed=schedule.missed, grace=grace, tried=tried)
        count = 0
        for at in times:
            run_id = run_id_of(schedule.name, to_time_text(at))
            try:
                held_by = await self._start(schedule, run_id)
            except RunBusy:
                raise
            except Exception as error:
                await self._give_notice(replace(schedule, next_at=to_time_text(at)), error)
                return count
            # crash: the run is there; who fires this time again finds it by its id.
            last_at, next_at = to_time_text(at), to_time_text(cron.next_after(at))
            outcome = {"held_by": held_by} if held_by else {"run_id": run_id}
            count += not held_by
            if not await advance_schedule(self._db, schedule, last_at=last_at, next_at=next_at, **outcome):
                return count  # another process goes on from here
            schedule = replace(schedule, last_at=last_at, next_at=next_at)
        if not times:  # all were missed, and are skipped
            last_at, next_at = to_time_text(now), to_time_text(cron.next_after(now))
            await advance_schedule(self._db, schedule, last_at=last_at, next_at=next_at)
        return count

    async def _start(self, schedule: Schedule, run_id: str) -> str | None:
        """Start the run of a time, unless it is skipped: then the run is returned that is not over."""
        if schedule.overlap == "skip" and (held_by := await find_unended_run(self._db, schedule, but=run_id)):
            return held_by
        await start_scheduled(self._db, self._engines, schedule, run_id)
        return None

    async def _give_notice(self, schedule: Schedule, error: Exception) -> None:
        """Record why the run of a schedule's next time could not be started, and let it rest for a while."""
        self._not_before[schedule.name] = time.monotonic() + _TRY_AGAIN_S
        is_ours = isinstance(error, HoldfastError)
        problem = error.message if isinstance(error, HoldfastError) else type(error).__name__
        about = {"schedule": schedule.name}
        _log.warning(
            "A schedule could not start its run: %s", problem, exc_info=None if is_ours else error, extra=about
        )
        # Settings and folders may differ from machine to machine: whoever reads it must know where to look.
        await note_problem(self._db, schedule, f"{self._place}: {problem}")


def _to_moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


async def _start_flow(db: Database, schedule: Schedule, run_id: str) -> None:
    from holdfast.flows.service.start import start_scheduled_flow

    queue, priority = schedule.options.get("queue"), schedule.options.get("priority")
    order = FlowOptions(queue or DEFAULT_QUEUE, priority or 0)
    # Also where times are skipped: one that a person starts beside them waits too.
    options = replace(order, schedule=schedule.name, is_in_line=True)
    arguments: dict[str, Any] = dict(schedule.options.get("arguments") or {})
    await start_scheduled_flow(schedule.target, (), arguments, run_id=run_id, store=db.store, options=options)
