"""Live events of all runs: one order for all clients, nothing missed and nothing twice, whoever writes and dies."""

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.api import feed_writer
from tests.support.api.server_world import Api
from tests.support.api.stream_clients import one_by_one
from tests.support.crash.points import IS_TORTURE, SEED

from holdfast import Context, RunPaused, decide, run_flow
from holdfast.api.live.feed import EventFilter, Feed
from holdfast.persistence.db import Database
from holdfast.persistence.models import RunRow, WorkflowTemplateRow
from holdfast.runtime.events import create_event
from holdfast.runtime.journal import Journal
from holdfast.runtime.stores import open_journal, open_store

EVERYTHING = EventFilter()
Entry = tuple[int, str, int]


async def add_runs(db: Database, run_ids: Sequence[str], state: str = "running") -> None:
    """Rows as an engine would write them, without the work."""
    async with db.session() as session:
        if await session.get(WorkflowTemplateRow, "t") is None:
            session.add(WorkflowTemplateRow(id="t", hash="h"))
            await session.flush()
        for run_id in run_ids:
            session.add(RunRow(id=run_id, template_id="t", state=state, created_at="2026-01-01T00:00:00.000Z"))
        await session.commit()


@asynccontextmanager
async def open_feed(url: str, *, max_queued: int = 1000) -> AsyncIterator[tuple[Feed, Database, Journal]]:
    """A feed as one server has it."""
    db = Database(url)
    try:
        await db.init_schema()
        async with open_journal(db.store) as journal:
            feed = Feed(db, journal, max_queued=max_queued)
            journal.add_commit_listener(feed.note_commit)
            yield feed, db, journal
            feed.close()
            await feed.wait_closed()
    finally:
        await db.dispose()


def to_entry(frame: bytes) -> Entry | None:
    lines = dict(line.partition(": ")[::2] for line in frame.decode().splitlines())
    if "data" not in lines or lines["event"] == "ready":
        return None
    event = json.loads(lines["data"])
    return int(lines["id"]), event["run_id"], event["seq"]


async def collect(feeds: Sequence[Feed], seed: str, total: asyncio.Future[int]) -> list[Entry]:
    """Follow from the beginning, leave at random, come back to a feed at random, until everything has been told."""
    chance, log, last = random.Random(seed), list[Entry](), 0
    while not (total.done() and len(log) >= total.result()):
        stay = chance.randint(1, 60)
        stream = chance.choice(feeds).follow(last, EVERYTHING, idle_s=0.1)
        async for frame in one_by_one(stream):
            entry = to_entry(frame)
            if entry is not None:
                log.append(entry)
                last = entry[0]
            stay -= 1
            if stay <= 0 or (total.done() and len(log) >= total.result()):
                break
        await stream.aclose()
    return log


async def start_writer(address: str, seed: str, rounds: int, run_ids: Sequence[str]) -> asyncio.subprocess.Process:
    program = str(Path(feed_writer.__file__))
    child = await asyncio.create_subprocess_exec(
        sys.executable, program, address, seed, str(rounds), *run_ids, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert await child.stdout.readline() == b"ready\n"
    return child


async def test_clients_that_come_and_go_see_what_many_processes_write_in_one_order(database_url: str) -> None:
    rounds, runs = (400, 40) if IS_TORTURE else (30, 8)
    chance = random.Random(f"feed {SEED}")
    run_ids = [f"run-{number}" for number in range(runs)]
    async with open_feed(database_url, max_queued=50) as (one, db, journal), open_feed(database_url) as (two, _, _):
        await add_runs(db, run_ids)
        total: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        clients = [asyncio.create_task(collect([one, two], f"{SEED} {number}", total)) for number in range(5)]
        children = [
            await start_writer(db.address, f"{SEED} {number}", limit, run_ids)
            for number, limit in enumerate([10**9, rounds, rounds])
        ]
        for number in range(rounds):
            await journal.append(run_id := chance.choice(run_ids), [create_event(run_id, "agent.progress", n=number)])
            await asyncio.sleep(0.005)
        children[0].kill()
        assert [await child.wait() for child in children] == [-9, 0, 0]
        heads = db.store.read_heads(run_ids)
        total.set_result(sum(heads.values()))
        logs = await asyncio.gather(*clients)

    assert all(log == logs[0] for log in logs)
    positions = [position for position, _, _ in logs[0]]
    assert positions == sorted(set(positions))
    for run_id in run_ids:
        assert [seq for _, entry_run_id, seq in logs[0] if entry_run_id == run_id] == list(
            range(1, heads.get(run_id, 0) + 1)
        )


async def test_what_happened_while_nobody_looked_is_told_to_who_comes_back(database_url: str) -> None:
    async with open_feed(database_url) as (feed, db, journal):
        await add_runs(db, ["a", "b"], state="completed")
        await journal.append("a", [create_event("a", "agent.progress") for _ in range(3)])
        first = await take(feed, 0, 3)
        await journal.append("b", [create_event("b", "agent.progress")])
        await journal.append("a", [create_event("a", "agent.progress")])
    async with open_feed(database_url) as (feed, _db, _journal):
        later = await take(feed, first[-1][0], 2)
        again = await take(feed, 0, 5)

    assert first == [(1, "a", 1), (2, "a", 2), (3, "a", 3)]
    assert sorted(entry[1:] for entry in later) == [("a", 4), ("b", 1)]
    assert again == first + later


async def take(feed: Feed, after: int, count: int) -> list[Entry]:
    found: list[Entry] = []
    stream = feed.follow(after, EVERYTHING, idle_s=5)
    frames = one_by_one(stream)
    while len(found) < count:
        entry = to_entry(await anext(frames))
        if entry is not None:
            found.append(entry)
    await stream.aclose()
    return found


async def test_who_brings_no_number_hears_of_what_is_new_only(database_url: str) -> None:
    async with open_feed(database_url) as (feed, db, journal):
        await add_runs(db, ["a"])
        await journal.append("a", [create_event("a", "agent.progress") for _ in range(5)])
        stream = feed.follow(None, EVERYTHING, idle_s=5)
        ready = await anext(stream)

        await journal.append("a", [create_event("a", "run.completed")])
        new = await anext(stream)

        await stream.aclose()
    assert ready == b'id: 5\nevent: ready\ndata: {"position": 5}\n\n'
    assert to_entry(new) == (6, "a", 6)


async def test_another_process_is_heard_at_once_and_a_deleted_run_is_passed_over(database_url: str) -> None:
    async with open_feed(database_url) as (feed, db, journal):
        await add_runs(db, ["a", "b"])
        other = open_store(db.address)
        await journal.append("a", [create_event("a", "agent.progress")])
        stream = feed.follow(0, EVERYTHING, idle_s=30)
        assert to_entry(await anext(stream)) == (1, "a", 1)
        await asyncio.to_thread(other.save_event, create_event("b", "agent.progress"))
        assert to_entry(await anext(stream)) == (2, "b", 1)
        await stream.aclose()
        await asyncio.to_thread(other.delete_run, "a")
        await asyncio.to_thread(other.close)

        assert await take(feed, 0, 1) == [(2, "b", 1)]


async def test_a_damaged_run_is_told_and_does_not_stop_the_others(database_url: str) -> None:
    from sqlalchemy import text

    async with open_feed(database_url) as (feed, db, journal):
        await add_runs(db, ["a", "b"])
        for run_id in ("a", "b"):
            await journal.append(run_id, [create_event(run_id, "agent.progress") for _ in range(2)])
        await take(feed, 0, 4)
        async with db.session() as session:
            await session.execute(text("UPDATE events SET body = '{}' WHERE run_id = 'a' AND seq = 2"))
            await session.commit()
        stream = feed.follow(0, EVERYTHING, idle_s=5)
        iterator = one_by_one(stream)
        frames = [await anext(iterator), await anext(iterator), await anext(iterator)]
        await stream.aclose()

    assert sum(b"event: run.unreadable\n" in frame and b"journal_corrupt" in frame for frame in frames) == 1
    assert sum(b'"run_id":"b"' in frame for frame in frames) == 2


async def test_nothing_is_read_or_written_for_nobody(api: Api) -> None:
    await api.wait_for(await api.start())
    server = await api.app.state.holder.get()

    tasks = [task.get_name() for task in asyncio.all_tasks()]

    assert "holdfast-feed" not in tasks
    assert server.feed.count_clients() == 0
    async with server.db.session() as session:
        from sqlalchemy import text

        assert (await session.execute(text("SELECT COUNT(*) FROM feed"))).scalar() == 0


@pytest.fixture
def live(api: Api) -> Any:
    """httpx reads an ASGI app's answer to its end, and this one has none: what it says is taken from the route."""

    async def follow(**params: Any) -> tuple[int, list[bytes]]:
        from holdfast.api.live.sse import EventStream
        from holdfast.api.routes.events import follow_all

        server = await api.app.state.holder.get()
        request = SimpleNamespace(state=SimpleNamespace(is_still_in=None))
        answer = await follow_all(server, None, request, **params)  # type: ignore[arg-type]
        assert isinstance(answer, EventStream)
        frames = []
        async for frame in one_by_one(answer._frames):
            frames.append(frame)
            if b"event: run.completed" in frame:
                break
        await answer._frames.aclose()
        return answer.status_code, frames

    return follow


async def test_kinds_can_be_chosen_and_text_left_out(api: Api, live: Any) -> None:
    run_id = await api.start()
    await api.wait_for(run_id)
    server = await api.app.state.holder.get()
    await server.journal.append(run_id, [create_event(run_id, "text.delta", text="x")])
    await server.journal.append(run_id, [create_event(run_id, "run.completed")])

    def kinds(frames: list[bytes]) -> list[str]:
        return [frame.split(b"event: ")[1].split(b"\n")[0].decode() for frame in frames if b"event: " in frame]

    _, some = await live(last_event_id="0", kinds="phase, run.completed")
    _, quiet = await live(last_event_id="0", without_text=True)

    assert set(kinds(some)) == {"phase.started", "phase.completed", "run.completed"}
    assert "run.created" in kinds(quiet)
    assert "text.delta" not in kinds(quiet)


async def test_only_the_runs_one_looks_at_are_told_in_full(database_url: str) -> None:
    async with open_feed(database_url) as (feed, db, journal):
        await add_runs(db, ["mine", "other"])
        for run_id in ("mine", "other"):
            kinds = ("run.created", "text.delta", "run.completed")
            await journal.append(run_id, [create_event(run_id, kind, text="x") for kind in kinds])
        stream = feed.follow(0, EventFilter(in_full=frozenset({"mine"})), idle_s=60)
        events = []
        async for frame in one_by_one(stream):
            events.append(json.loads(frame.split(b"data: ")[1]))
            if len(events) == 5:
                break
        await stream.aclose()

    assert [(event["run_id"], event["seq"], "payload" in event) for event in events] == [
        *(("mine", seq, True) for seq in (1, 2, 3)),
        *(("other", seq, False) for seq in (1, 3)),
    ]


async def test_a_bad_or_foreign_position_is_refused(api: Api) -> None:
    for bad in ("x", "-1", "1.5", "9" * 30, "12"):
        answer = await api.viewer.get("/api/events", params={"last_event_id": bad})
        assert (answer.status_code, answer.json()["code"]) == (400, "last_event_id_invalid"), bad


async def test_who_may_do_what_is_not_told_to_viewers(api: Api, live: Any) -> None:
    await api.admin.post("/api/tokens", json={"name": "secretive", "role": "viewer"})
    await api.wait_for(await api.start())

    _, frames = await live(last_event_id="0")

    assert frames
    assert not any(b"holdfast-access" in frame or b"secretive" in frame for frame in frames)


async def run_to_the_end(store: Any, run_id: str, steps: int = 3) -> None:
    async def work(ctx: Context) -> str:
        for number in range(steps):
            await ctx.step(f"step {number}", lambda: "done")
        await ctx.approval("go")
        return "over"

    with pytest.raises(RunPaused):
        await run_flow(work, run_id=run_id, store=store)
    await decide(run_id, "go", "approve", store=store)
    await run_flow(work, run_id=run_id, store=store)


FLOW_KINDS = [
    *("run.created", "run.started", "human.approval.requested", "run.paused", "human.approval.received"),
    *("run.resumed", "run.completed"),
]


async def take_kinds(feed: Feed, after: int, last: str) -> list[tuple[str, str]]:
    """Follow until the run of this name is over; return run and kind of everything that was told."""
    found: list[tuple[str, str]] = []
    stream = feed.follow(after, EVERYTHING, idle_s=5)
    async for frame in one_by_one(stream):
        if to_entry(frame) is not None:
            event = json.loads(frame.split(b"data: ")[1])
            found.append((event["run_id"], event["kind"]))
            if found[-1] == (last, "run.completed"):
                break
    await stream.aclose()
    return found


async def test_where_flows_stand_and_what_they_ask_is_told_but_not_their_steps(database_url: str) -> None:
    async with open_feed(database_url) as (feed, db, journal):
        stream = feed.follow(None, EVERYTHING, idle_s=60)
        frames = one_by_one(stream)
        assert b"event: ready" in await anext(frames)
        await run_to_the_end(journal.store, "ours")
        while b"run.completed" not in await anext(frames):
            pass
        await stream.aclose()
        # Another process's, while nobody follows; and one of a workflow.
        async with open_journal(db.address) as other:
            await run_to_the_end(other.store, "another's")
        await add_runs(db, ["a"], state="completed")
        await journal.append("a", [create_event("a", "step.completed"), create_event("a", "run.completed")])
    async with open_feed(database_url) as (feed, db, _journal):
        first = await take_kinds(feed, 0, "another's")
        again = await take_kinds(feed, 0, "another's")

    assert [kind for run_id, kind in first if run_id == "ours"] == FLOW_KINDS
    assert [kind for run_id, kind in first if run_id == "another's"] == FLOW_KINDS
    assert again == first


async def test_a_flow_of_another_process_is_heard_of_while_one_listens(database_url: str) -> None:
    async with open_feed(database_url) as (feed, db, _journal):
        stream = feed.follow(None, EVERYTHING, idle_s=60)
        frames = one_by_one(stream)
        assert b"event: ready" in await anext(frames)
        async with open_journal(db.address) as other:
            await run_to_the_end(other.store, "f", steps=120)  # more than a page that nobody is told of

        kinds = [json.loads((await anext(frames)).split(b"data: ")[1])["kind"] for _ in FLOW_KINDS]

        await stream.aclose()
    assert kinds == FLOW_KINDS
