"""A fleet under fire: machines die, stop and lose the network, Postgres crashes, and nothing is lost or done twice.

`make test` does a small one by its seed; `make chaos` does it for minutes, with everything that can go wrong.
"""

import asyncio
import contextlib
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.api.server_world import make_repository
from tests.support.api.stream_clients import Follower
from tests.support.chaos.audit import WATCH_SQL, Audit, Outside, streamed_numbers
from tests.support.chaos.client import People
from tests.support.chaos.jobs import make_workshop, run_of, script
from tests.support.chaos.machines import running_fleet
from tests.support.chaos.namespaces import can_have_namespaces
from tests.support.chaos.older import find_older, unpack
from tests.support.chaos.schedules import Ticks
from tests.support.chaos.servers import ServerPair, SingleServer, running_pair
from tests.support.chaos.storm import Storm
from tests.support.crash.points import SEED
from tests.support.model_server import ModelServer
from tests.support.postgres_server import fresh_schema
from tests.support.progress_limit import waiting_until

from holdfast.engine.audit import check_database
from holdfast.persistence.admission import put_limit
from holdfast.persistence.db import Database

MINUTES = float(os.environ.get("HOLDFAST_TEST_CHAOS_MINUTES", "0"))
RUNS = 60
FLOWS_EACH = 1 if MINUTES else 9
"""So many flows come with each run of a workflow, which takes much longer."""
OPEN_MOST = 24
CALLS_MOST = 2
SHORT = ("kill", "kill", "stop", "cut", "crash")
LONG = ("kill", "kill", "kill", "destroy", "stop", "cut", "reset", "crash", "serve_again", "fail_over")
Servers = SingleServer | ServerPair


@pytest.fixture
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    """A primary with its standby where there is time for it."""
    with contextlib.ExitStack() as stack:
        if MINUTES:
            yield stack.enter_context(running_pair())
        else:
            yield SingleServer(request.getfixturevalue("postgres_url"))


@pytest.fixture
def chaos_url(servers: Servers) -> Iterator[str]:
    with fresh_schema(servers.url) as url:
        yield url


def unpack_older(folder: Path) -> Path | None:
    """The version before, where there is time for it and the repository's history."""
    if not MINUTES:
        return None
    commit = find_older()
    print(f"a worker of {commit[:10]} works beside" if commit else "no history of the repository: no older worker")
    return unpack(commit, folder / "older") if commit else None


async def test_every_run_ends_and_nothing_that_was_recorded_happens_again(
    tmp_path: Path, servers: Servers, chaos_url: str
) -> None:
    chance = random.Random(f"chaos {SEED}")
    db = Database(chaos_url)
    await db.init_schema()
    async with db.session() as session:
        await (await (await session.connection()).get_raw_connection()).driver_connection.execute(WATCH_SQL)  # type: ignore[union-attr]
        await session.commit()
    await put_limit(db, "provider", "openai_compatible", CALLS_MOST, by="")
    repo = make_repository(tmp_path / "work" / "repo")
    with ModelServer(script()) as models:
        workshop = make_workshop(tmp_path, models.address)
        arguments = ["--slots", "4", "--flows", str(workshop.flows)]
        # Namespaces need root, and each worker is a program of its own then, which takes seconds to start.
        has_namespaces = bool(MINUTES) and can_have_namespaces()
        starting = running_fleet(
            tmp_path,
            chaos_url,
            arguments,
            host=servers.primary,
            older=unpack_older(tmp_path),
            model_port=models.port if has_namespaces else None,
        )
        with starting as fleet:
            if MINUTES:
                print(f"machines {'with namespaces' if has_namespaces else 'by name alone'}", flush=True)
            people = People(fleet, db.store, repo)
            storm = Storm(fleet, servers, chance)
            ticks = Ticks(db)
            if MINUTES:
                await ticks.begin()
            stream = Follower("nobody", "/api/events", f"stream {SEED}", stay=400)
            stream.servers.append(fleet.address)
            done = asyncio.Event()
            async with asyncio.TaskGroup() as beside:
                helpers = [
                    beside.create_task(each)
                    for each in (people.answer_all(done), stream.follow(done), storm.keep_running())
                ]
                await _work(people, storm, chance, beside, ticks)
                total = sum(
                    len(streamed_numbers(db.store.list_events(run_id), is_flow=run_id in people.flows))
                    for run_id in (*people.runs, *people.flows)
                )
                ours = {*people.runs, *people.flows}
                with waiting_until("the stream has all of it"):
                    while sum(event["run_id"] in ours for event in stream.log) < total:  # schedules start others too
                        await asyncio.sleep(0.05)
                done.set()
                for task in helpers:
                    task.cancel()
            frozen = frozenset(who for machine in fleet.machines for who in machine.frozen)
            diffs = [(await people.ask("GET", f"/api/runs/{run_id}/diff")).text for run_id in people.runs]
        calls = Counter(run_of(models, number) for number in range(len(models.received)))
        outside = Outside(workshop, calls, frozen, stream.log, people.seen)
        audit = Audit(chaos_url, db.store, outside)
        found = audit.run(people.runs, people.flows)
    if MINUTES:
        found += await ticks.check()
    found += [str(each) for each in await check_database(db)]
    await db.dispose()
    assert not found, "\n".join([f"seed {SEED}", *storm.log, *found])
    assert models.most_at_once <= CALLS_MOST, f"seed {SEED}"
    assert [diff.count("+built") for diff in diffs] == [1] * len(diffs)
    done = f"{len(people.runs)} runs, {len(people.flows)} flows, {audit.count_recorded()} results recorded"
    print(f"seed {SEED}: {done}{f', {ticks.count()} times of schedules' if MINUTES else ''}")


async def _work(people: People, storm: Storm, chance: random.Random, beside: asyncio.TaskGroup, ticks: Ticks) -> None:
    """Start runs while things go wrong, as long as they do, and wait until all of them are over."""
    if MINUTES:
        blowing = asyncio.create_task(storm.blow_for(MINUTES * 60, LONG, gap_s=(2.0, 6.0)))
    else:
        names = chance.sample(SHORT, len(SHORT))
        blowing = asyncio.create_task(storm.blow(names, gap_s=(0.5, 2.0)))
    number = 0
    while number < RUNS or not blowing.done():
        if await people.count_open() < OPEN_MOST and (number < RUNS or MINUTES):
            is_flow = number % (1 + FLOWS_EACH) != 0
            await people.start(number, is_flow=is_flow)
            if is_flow:
                beside.create_task(people.follow(people.flows[-1]))
            number += 1
        await asyncio.sleep(chance.uniform(0.1, 0.8) / FLOWS_EACH)
    await blowing
    if MINUTES:
        await ticks.end(people)
    await people.wait_for_all()
    with waiting_until("nobody has a run that is over"):
        while await people.count_held():
            await asyncio.sleep(0.1)
