"""The database is away when a drive reads: no agent, phase or run fails for it, whichever read it is."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession
from tests.support.engine_world import World, template

import holdfast.engine
from holdfast.agents.build import build_agent
from holdfast.engine.phase.person_messages import PhaseMessages
from holdfast.engine.run_owner import RunOwner
from holdfast.enums import Backend, RunStatus
from holdfast.errors import StoreUnavailable
from holdfast.persistence.db import Database
from holdfast.runtime.checkpoint import SQLiteCheckpointer
from holdfast.runtime.events import EventKind
from holdfast.runtime.journal import Journal

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
FAILURES = (EventKind.AGENT_ERROR, EventKind.MODEL_ERROR, EventKind.PHASE_FAILED, EventKind.RUN_FAILED)


class Outage:
    """Refuses reads while a run is driven: those from the number `first` on, as many as `lasts`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.first = self.lasts = self.reads = 0
        self.is_driving = self.is_in_turn = False
        self.only_in_turn = False
        drive, read, session, waiting = RunOwner.drive, Journal.read, Database.session, PhaseMessages.read_waiting

        async def drive_and_note(*args: Any) -> None:
            self.is_driving = True
            try:
                await drive(*args)
            finally:
                self.is_driving = False

        async def read_events(journal: Journal, *args: Any) -> Any:
            self.check()
            return await read(journal, *args)

        @contextlib.asynccontextmanager
        async def open_session(db: Database) -> AsyncIterator[AsyncSession]:
            self.check()
            async with session(db) as opened:
                yield opened

        async def read_waiting(messages: PhaseMessages) -> Any:
            self.is_in_turn = True
            try:
                return await waiting(messages)
            finally:
                self.is_in_turn = False

        monkeypatch.setattr(RunOwner, "drive", drive_and_note)
        monkeypatch.setattr(Journal, "read", read_events)
        monkeypatch.setattr(Database, "session", open_session)
        monkeypatch.setattr(PhaseMessages, "read_waiting", read_waiting)

    def check(self) -> None:
        if not self.is_driving or (self.only_in_turn and not self.is_in_turn):
            return
        self.reads += 1
        if self.first <= self.reads < self.first + self.lasts:
            raise StoreUnavailable("postgresql:// cannot be reached: connection refused.")


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch) -> Outage:
    return Outage(monkeypatch)


async def begin(world: World) -> Any:
    made = world.know(template("spec"))
    engine = world.engine(backends=frozenset({Backend.SIMULATED}))
    holdfast.engine.build_agent = build_agent
    return engine, await engine.create(made, repo_path=world.repo)


async def test_an_agents_turn_waits_for_a_database_that_is_away(world: World, outage: Outage) -> None:
    engine, run_id = await begin(world)
    outage.only_in_turn, outage.first, outage.lasts = True, 2, 2

    result = await engine.resume(run_id)

    assert (result.state, result.error) == (RunStatus.COMPLETED, None)
    assert outage.reads > 3
    assert not [event for event in world.events(run_id) if event.kind in FAILURES]


async def test_no_read_of_a_drive_makes_a_run_fail_when_the_database_stays_away(
    world: World, outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SQLiteCheckpointer, "owner_patience_s", 0.0, raising=False)
    engine, run_id = await begin(world)
    await engine.resume(run_id)
    assert outage.reads > 8

    for number in range(1, outage.reads + 1):
        engine, run_id = await begin(world)
        outage.reads, outage.first, outage.lasts = 0, number, 1
        with contextlib.suppress(StoreUnavailable):
            await engine.resume(run_id)
        outage.lasts = 0
        if (await world.run_row(run_id)).state != RunStatus.COMPLETED:
            assert (await engine.resume(run_id)).state is RunStatus.COMPLETED

        assert not [event for event in world.events(run_id) if event.kind in FAILURES], f"read {number}"
