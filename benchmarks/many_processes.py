"""Several processes on one Postgres: whether their commits share syncs, when others see an event, what a look costs.

Everything is measured by turns in one job, so that both sides of a ratio meet the same moods of the machine.
"""

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import psycopg

from benchmarks.measure import Place, Reading, reading
from benchmarks.ours_flow import flow
from benchmarks.raw import row
from benchmarks.server import on_slow_disk
from holdfast import run_flow
from holdfast.runtime.checkpoint.postgres.notices import NoticeSender
from holdfast.runtime.checkpoint.postgres.store import PostgresCheckpointer
from holdfast.runtime.events import create_event
from holdfast.runtime.journal import Journal
from holdfast.runtime.stores import open_journal

PROCESSES = 8
SYNC_S = 0.0025
"""What a sync takes on the slower one of two disks: the bench's own needs a twentieth of that."""
WRITERS = 4
_TURNS = 3
_EVERY_S = 0.02
_LOOKS = 40
_SMALL, _BIG, _DUE = 100, 10_000, 10


def steps_by_processes(place: Place) -> Reading:
    """One run in one process, one run in each of eight, the same without any notice; and raw commits so."""
    return _compare(place.url, place.steps)


def steps_on_slow_disk(place: Place) -> Reading:
    """The same where a sync takes as long as on an ordinary disk."""
    with on_slow_disk(place.folder, SYNC_S) as url:
        return _compare(url, place.steps)


def _compare(url: str, steps: int) -> Reading:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS rows (number bigserial PRIMARY KEY, body bytea NOT NULL)")
    modes = {"one": 1, "eight": PROCESSES, "silent": PROCESSES, "raw_one": 1, "raw_eight": PROCESSES}
    rates: dict[str, list[float]] = {name: [] for name in modes}
    with reading() as found:
        for _ in range(_TURNS):
            for name, count in modes.items():
                rates[name].append(_measure(url, steps, count, name))

    def compare(name: str, other: str) -> float:
        return statistics.median(one / two for one, two in zip(rates[name], rates[other], strict=True))

    found.extra.update({f"{name}_rate": statistics.median(each) for name, each in rates.items()})
    found.extra.update(
        eight_to_one=compare("eight", "one"),
        eight_to_silent=compare("eight", "silent"),
        raw_eight_to_one=compare("raw_eight", "raw_one"),
    )
    return found


def _measure(url: str, steps: int, count: int, mode: str) -> float:
    """Steps per second of so many processes, from the moment when all are ready until the last one has done its own."""
    work = "commit" if mode.startswith("raw") else "drive"
    children = [_start(work, url, str(steps), mode) for _ in range(count)]
    _wait_for(children)
    began = time.perf_counter()
    _let_go(children)
    _wait_for(children, "done")
    took_s = time.perf_counter() - began
    for child in children:
        assert child.wait() == 0
    return count * steps / took_s


def time_until_seen(place: Place) -> Reading:
    """From an event's making, before its commit, to its arrival in another process; four processes write."""
    children = [_start("write", place.url, str(place.steps), f"run-{number}") for number in range(WRITERS)]

    async def follow(journal: Journal, run_id: str, took: list[float]) -> None:
        seen = 0
        async for event in journal.follow(run_id):
            took.append(time.time() - event.ts)
            seen += 1
            if seen == place.steps:
                return

    async def go() -> list[float]:
        store = PostgresCheckpointer(place.url)
        journal = Journal(store)
        took: list[float] = []
        following = [asyncio.create_task(follow(journal, f"run-{number}", took)) for number in range(WRITERS)]
        await asyncio.sleep(0.5)
        _let_go(children)
        await asyncio.gather(*following)
        await journal.close()
        store.close()
        return took

    _wait_for(children)
    with reading() as found:
        took = sorted(asyncio.run(go()))
    for child in children:
        assert child.wait() == 0
    found.extra.update(p50_s=took[len(took) // 2], p99_s=took[len(took) * 99 // 100])
    return found


def look_for_due(place: Place) -> Reading:
    """A worker's whole look, among few and among many runs and flows that wait or are over, by turns."""
    from holdfast.fleet.assembly import make_queue
    from holdfast.persistence.db import Database
    from holdfast.persistence.due.beat import beat
    from holdfast.persistence.fleet import QUEUES, WorkerFacts, register

    facts = WorkerFacts("bench", "process", "machine", "1", 8, QUEUES, ("flow",))

    async def go() -> dict[str, float]:
        dbs = {name: await open_filled(count) for name, count in (("small", _SMALL), ("big", _BIG))}
        times: dict[str, list[float]] = {name: [] for name in dbs}
        parts = make_queue(dbs["small"]).describe().parts
        for _ in range(_LOOKS):
            for name, db in dbs.items():
                began = time.perf_counter()
                found = await beat(db, facts, driven=0, queue_parts=parts)
                times[name].append(time.perf_counter() - began)
                assert len(found.due) == 2 * _DUE
        for db in dbs.values():
            await db.dispose()
        return {f"{name}_s": statistics.median(each) for name, each in times.items()}

    async def open_filled(waiting: int) -> Database:
        name = f"waiting_{waiting}"
        with psycopg.connect(place.url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}".encode())
        url = f"{place.url}{'&' if '?' in place.url else '?'}options=-csearch_path%3D{name}"
        db = Database(url)
        await db.init_schema()
        await make_queue(db).repair()
        await register(db, facts)
        with psycopg.connect(url, autocommit=True) as connection:
            for sql in _FILL:
                connection.execute(sql, {"waiting": waiting, "ended": 5 * waiting, "due": _DUE})
        return db

    with reading() as found:
        found.extra.update(asyncio.run(go()))
    return found


_RUNS = "INSERT INTO runs (id, template_id, state, pause_reason, open_questions, created_at) SELECT "
_FLOWS = "INSERT INTO flow_runs (run_id, flow, status, wake_at, waits_for) SELECT "
_TOMORROW = """to_char(now() + interval '1 day', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')"""
_FILL = (
    "INSERT INTO workflow_templates (id, hash) VALUES ('t', 'h')",
    _RUNS + "'ended-' || n, 't', 'completed', NULL, 0, n::text FROM generate_series(1, %(ended)s) AS n",
    _RUNS + "'paused-' || n, 't', 'paused', 'approval', 0, n::text FROM generate_series(1, %(waiting)s) AS n",
    _RUNS + "'later-' || n, 't', 'pending', NULL, 0, n::text FROM generate_series(1, %(waiting)s) AS n",
    _RUNS + "'midnight-' || n, 't', 'paused', 'budget', 0, n::text FROM generate_series(1, %(waiting)s) AS n",
    f"UPDATE runs SET due_at = {_TOMORROW} WHERE state = 'pending' OR pause_reason = 'budget'",
    _RUNS + "'due-' || n, 't', 'running', NULL, 0, n::text FROM generate_series(1, %(due)s) AS n",
    f"""INSERT INTO approvals (id, run_id, state, deadline_at) SELECT 'approval-' || id, id, 'pending', {_TOMORROW}
        FROM runs WHERE pause_reason = 'approval'""",
    _FLOWS + "'flow-ended-' || n, 'flow', 'completed', NULL, NULL FROM generate_series(1, %(ended)s) AS n",
    _FLOWS
    + """'flow-sleeping-' || n, 'flow', 'running', extract(epoch FROM now()) + 86400, 'timer'
        FROM generate_series(1, %(waiting)s) AS n""",
    _FLOWS + "'flow-due-' || n, 'flow', 'running', NULL, NULL FROM generate_series(1, %(due)s) AS n",
    "INSERT INTO journal_runs (run_id) SELECT id FROM runs UNION ALL SELECT run_id FROM flow_runs",
    "VACUUM ANALYZE",
)


def _start(*arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "benchmarks.many_processes", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _wait_for(children: list["subprocess.Popen[str]"], word: str = "ready") -> None:
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == f"{word}\n"


def _let_go(children: list["subprocess.Popen[str]"]) -> None:
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()


def _get_ready() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


async def drive(url: str, steps: int, mode: str) -> None:
    """Make steps in one run of this process's own; with the mode `silent` nobody is told of them."""
    if mode == "silent":
        note: Callable[..., Any] = lambda *_: None  # noqa: E731
        NoticeSender.note = note  # type: ignore[method-assign]
    async with open_journal(url):  # as in a program that runs: what is measured is steps, not connecting
        await run_flow(flow, 5, store=url)
        _get_ready()
        await run_flow(flow, steps, store=url)
        print("done", flush=True)


async def commit(url: str, steps: int, _mode: str) -> None:
    """Insert as many bytes as a step stores, each in a synced commit of its own: what the server can do at all."""
    body = row()
    with psycopg.connect(url, autocommit=True) as connection:
        for number in range(steps + 5):
            if number == 5:
                _get_ready()
            connection.execute("INSERT INTO rows (body) VALUES (%b)", (body,))
        print("done", flush=True)


async def write(url: str, steps: int, run_id: str) -> None:
    """Append at the pace of an agent's live output."""
    store = PostgresCheckpointer(url)
    journal = Journal(store)
    claim = await journal.claim(run_id)
    _get_ready()
    for number in range(steps):
        await journal.append(run_id, [create_event(run_id, "step.completed", key=f"s{number}")], claim=claim)
        await asyncio.sleep(_EVERY_S)
    await journal.close()
    store.close()


if __name__ == "__main__":
    name, url, steps, option = sys.argv[1:]
    asyncio.run({"drive": drive, "commit": commit, "write": write}[name](url, int(steps), option))
