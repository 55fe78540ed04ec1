"""One look at one run: whether it is due, whether it can be driven here, and the drive itself, of whichever kind."""

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from holdfast.config import Config
from holdfast.engine.run.load import LoadedRun, load_run
from holdfast.engine.workflow_engine import WorkflowEngine
from holdfast.enums import RunPhaseState, RunStatus
from holdfast.errors import (
    BackendUnavailable,
    LeaseLost,
    RepositoryNotAllowed,
    RunAlreadyTerminal,
    RunBusy,
    RunNotInState,
    RunWaits,
    StoreError,
    WorkspaceError,
)
from holdfast.flows.format_check import describe_newer, to_newer_error
from holdfast.flows.service.flow_drive import FlowDrive
from holdfast.flows.service.flow_look import FlowLooks
from holdfast.flows.service.flow_registry import FlowDefinition
from holdfast.persistence.db import Database
from holdfast.persistence.due.beat import find_takeovers
from holdfast.persistence.listings import DueRun, list_due
from holdfast.persistence.statements import clear_wake
from holdfast.readiness import Readiness
from holdfast.runtime.journal import Journal
from holdfast.runtime.outcomes.crashes import MOST_DEATHS, count_deaths, has_progress
from holdfast.runtime.step import Drained
from holdfast.workspace.transfer.remotes import to_folder

EngineMaker = Callable[[Path | None], Awaitable[WorkflowEngine]]
_AGENTS = "holdfast.engine.phase.middleware"
_PARK_AFTER_S = 30.0
_SUSPECT_DEATHS = 2  # after the first, all runs of a dead machine go on at once
_FAIR_AMONG = 100  # users
# The request to go on stays, for whoever tries next: nothing was written, or another process has the run and takes the
# request back when it has begun, or this one is to end.
_UNSERVED = (
    *(WorkspaceError, RepositoryNotAllowed, StoreError, BackendUnavailable, RunBusy, LeaseLost, RunWaits),
    asyncio.CancelledError,
)


class Drive(Protocol):
    """A run that is being driven."""

    async def run(self) -> None:
        """Drive it to its next stop. Raises `RunBusy` if another has it, and whatever keeps it from being driven."""
        ...

    def drain(self) -> bool:
        """Begin no more calls; return true if one is in flight, whose end is worth waiting for."""
        ...


class NoDrive:
    """Of a run of which nothing is to be driven here now."""

    async def run(self) -> None:
        pass

    def drain(self) -> bool:
        return False


class WorkflowDrive:
    """Drives a workflow's run, and takes back the request that it has served."""

    def __init__(self, journal: Journal, engine: WorkflowEngine, run: DueRun) -> None:
        self._journal = journal
        self._engine = engine
        self._run = run

    async def run(self) -> None:
        is_served = True
        try:
            if self._run.state == RunStatus.FAILED:
                await self._engine.retry(self._run.run_id)
            else:
                await self._engine.drive_due(self._run.run_id)
        except (RunAlreadyTerminal, RunNotInState):
            pass  # somebody was faster
        except Drained:
            is_served = False
        except _UNSERVED:
            is_served = False
            raise
        finally:
            if is_served and self._run.wake is not None:
                # crash: the run is paused with the request still there: it is resumed once more, and pauses again.
                await self._journal.append(self._run.run_id, [], rows=[clear_wake(self._run.run_id, self._run.wake)])

    def drain(self) -> bool:
        return self._engine.drain(self._run.run_id)


class Suspect(NamedTuple):
    """A run with which processes died, and its last event before it was tried again."""

    run_id: str
    head: int


class FlowPlaces:
    """How many runs of each flow this process drives, and which it has turned away. Rows say what is due: who forgets
    one that waits costs it seconds."""

    def __init__(self) -> None:
        self._driven: dict[str, str] = {}
        self._waiting: dict[str, dict[str, None]] = {}

    def take(self, definition: FlowDefinition, run_id: str) -> None:
        """Take a place for a run. Raises `RunWaits` if the flow has none free."""
        name, most = definition.name, definition.max_parallel
        taken = sum(flow == name for flow in self._driven.values())
        if most is not None and taken >= most:
            self._waiting.setdefault(name, {})[run_id] = None
            raise RunWaits(f"Waits for a place of flow {name}, {taken} of {most} are taken.", flow=name)
        self._driven[run_id] = name

    def give_back(self, run_id: str) -> str | None:
        """Free a run's place; returns the run that has waited longest for it."""
        waiting = self._waiting.get(self._driven.pop(run_id, ""), {})
        first = next(iter(waiting), None)
        if first is not None:
            del waiting[first]
        return first


class RunDrives:
    """Looks at runs by their ids and makes their drives; with `is_choosy` it leaves those that it lacks a key for."""

    def __init__(
        self,
        db: Database,
        journal: Journal,
        config: Config,
        make_engine: EngineMaker,
        *,
        flows: Mapping[str, FlowDefinition],
        is_choosy: bool,
        queues: Collection[str] | None = None,
    ) -> None:
        self.spool_dir = config.data_dir / "spool"
        self._db = db
        self._journal = journal
        self._make_engine = make_engine
        self._flows = flows
        self._queues = queues
        self._looks = FlowLooks(journal)
        self._places = FlowPlaces()
        self._suspect: Suspect | None = None
        self._readiness = Readiness(config_dir=config.config_dir) if is_choosy else None
        self._loading: asyncio.Task[object] | None = None

    async def find_turn(self, run_id: str, but: Collection[str]) -> tuple[DueRun, DueRun] | None:
        """Return the run that this one makes room for, and this one itself; `None` if it is its own turn.

        Jobs come in the order in which they were written. Whose turn it is, the rows say: one user's many must not keep
        another's waiting.
        """
        if self._readiness is None:
            return None  # the sweep of one machine has asked for them in the order of their turns
        own = await list_due(self._db, of=[run_id], queues=self._queues)
        if not own:
            return None
        due = await list_due(self._db, limit=_FAIR_AMONG, but=but, queues=self._queues)
        return None if not due or due[0].run_id == run_id else (due[0], own[0])

    async def find_flow(self, run_id: str) -> FlowDrive | NoDrive | None:
        """Return the drive of a flow's run, which does nothing if it is not due or not known here; `None` if it is no
        flow's.

        Raises `RunWaits` with the fact `flow` if as many runs of its flow are driven here as may be, and
        `RunNotInState` with the fact `missing` if a newer version has written it.
        """
        look = await self._looks.look(run_id) if self._flows else None
        if look is None:
            return None
        row = look.row
        if row.parent_run_id is not None or row.flow not in self._flows or not (row.is_due or row.is_driven):
            return NoDrive()
        if describe_newer(row) is not None:
            raise to_newer_error(row)
        definition = self._flows[row.flow]
        if row.status != RunStatus.PENDING:  # nobody has died with what nobody has begun
            await self._check_suspect(run_id)
        self._places.take(definition, run_id)
        begin = partial(self._looks.begin, look)
        return FlowDrive(self._journal, definition, run_id, park_after_s=_PARK_AFTER_S, begin=begin)

    async def find(self, run_id: str) -> Drive | None:
        """Return the drive of a workflow's run; `None` if it is not due, or over.

        Raises `BackendUnavailable` with the fact `missing` if this machine lacks what the run needs.
        """
        due = await list_due(self._db, of=[run_id], queues=self._queues)
        if not due:
            return None
        await self._check_suspect(run_id)
        await self._check(run_id)
        await self._load_agents()
        return WorkflowDrive(self._journal, await self._make_engine(to_folder(due[0].repo_path)), due[0])

    def end(self, run_id: str) -> str | None:
        """Note that a run is driven no more; returns one that waited here for its place."""
        if self._suspect is not None and self._suspect.run_id == run_id:
            self._suspect = None
        return self._places.give_back(run_id)

    async def _check_suspect(self, run_id: str) -> None:
        """Let a run that others died with be the only such one here until it gets further. Raises `RunWaits`.

        A run that kills its process takes others with it. Driven one by one, those are not taken for it.
        """
        if self._readiness is None:
            return
        head, takeovers = await find_takeovers(self._db, run_id)
        if not takeovers:
            return
        deaths = 1 + takeovers.count(head)
        if deaths < _SUSPECT_DEATHS:  # else it may be the journal that they died of
            deaths = count_deaths(await self._journal.read(run_id), (*takeovers, head))
        if not _SUSPECT_DEATHS <= deaths < MOST_DEATHS:
            return
        while (other := self._suspect) is not None and other.run_id != run_id:
            if not has_progress(await self._journal.read(other.run_id, other.head)):
                raise RunWaits(
                    f"Processes died with it; run {other.run_id[:8]}, with which they died too, is tried first."
                )
            if self._suspect is other:
                self._suspect = None
        self._suspect = Suspect(run_id, head)

    async def _check(self, run_id: str) -> None:
        if self._readiness is None:
            return
        loaded = await load_run(self._db, run_id, (), may_be_over=True)
        for role in _list_open_roles(loaded):
            missing = await asyncio.to_thread(self._readiness.find_missing_here, loaded.personas[role])
            if missing is not None:
                raise BackendUnavailable(f"This machine lacks {missing}.", missing=missing)

    async def _load_agents(self) -> None:
        """Import what agents need in a thread, once: on the loop it would hold up everything else for seconds."""
        if self._loading is None or (self._loading.done() and self._loading.exception() is not None):
            # One that failed is tried again: what was missing may be there by now.
            self._loading = asyncio.create_task(asyncio.to_thread(importlib.import_module, _AGENTS))
        await asyncio.shield(self._loading)


def _list_open_roles(loaded: LoadedRun) -> list[str]:
    over = (RunPhaseState.COMPLETED, RunPhaseState.SKIPPED)
    done = {key for key, row in loaded.stored.phases.items() if row.state in over}
    return sorted({phase.role for phase in loaded.template.phases if phase.key not in done})
