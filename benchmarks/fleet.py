"""Workers on one Postgres: how soon they begin what is due, how many flows they end a second, what a death costs.

Workers are processes of `holdfast worker` with a data directory and a machine's name each, so that nobody sees that one
of them is dead. `python -m benchmarks.fleet` has the costs in rows and in write-ahead log, for docs/scale.md.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmarks.measure import Place, Reading, git, reading
from holdfast.flows.service.handle import get_flow
from holdfast.flows.service.start import start_flow
from holdfast.runtime.checkpoint.postgres.store import PostgresCheckpointer
from holdfast.runtime.events import Event

_GAP_S = 0.1
_FLOWS = Path(__file__).with_name("fleet_flows.py")
_OWNER = "SELECT owner::json->>'host' FROM journal_runs WHERE run_id = %s AND owner IS NOT NULL"
_OPEN = "SELECT count(*) FROM flow_runs WHERE status <> 'completed'"


@dataclass(frozen=True)
class BenchWorker:
    name: str
    process: "subprocess.Popen[str]"


def _start_worker(place: Place, name: str) -> BenchWorker:
    environment = {
        **os.environ,
        "HOLDFAST_DATABASE_URL": place.url,
        "HOLDFAST_DATA_DIR": str(place.folder / name),
        "HOLDFAST_TEST_MACHINE": name,
    }
    command = [sys.executable, "-m", "holdfast", "worker", "--name", name, "--flows", str(_FLOWS)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("Worker ")
    return BenchWorker(name, process)


@contextlib.contextmanager
def _workers(place: Place, count: int) -> Iterator[list[BenchWorker]]:
    started: list[BenchWorker] = []
    try:
        started += [_start_worker(place, f"worker-{number}") for number in range(count)]
        yield started
    finally:
        for worker in started:
            worker.process.kill()
            worker.process.communicate()


def due_until_begun(place: Place) -> Reading:
    """From the event that makes a flow due to the first one of an idle worker; both clocks are this machine's."""

    async def go() -> list[float]:
        store = PostgresCheckpointer(place.url)
        took = []
        for number in range(place.steps + 3):
            handle = await start_flow("one_step", number, store=store)
            await handle.result()
            created, first = store.list_events(handle.run_id)[:2]
            took.append(first.ts - created.ts)
            await asyncio.sleep(_GAP_S)
        store.close()
        return sorted(took[3:])  # the first ones load what the others find loaded

    with _workers(place, 1), reading() as found:
        took = asyncio.run(go())
    found.extra.update(p50_s=took[len(took) // 2], p99_s=took[len(took) * 99 // 100])
    return found


def begun_and_ended(place: Place) -> Reading:
    """So many flows of one step, written down by this process and done by two workers."""

    async def go() -> None:
        store = PostgresCheckpointer(place.url)
        await asyncio.gather(*(start_flow("one_step", number, store=store) for number in range(place.steps)))
        store.close()

    with _workers(place, 2):
        asyncio.run(_warm_up(place))
        with psycopg.connect(place.url, autocommit=True) as connection, reading() as found:
            asyncio.run(go())
            while _read_one(connection, _OPEN):
                time.sleep(0.01)
    return found


def killed_until_elsewhere(place: Place) -> Reading:
    """From the kill of the worker that has a flow to the first event of the one that goes on with it."""
    took = []

    async def follow(store: PostgresCheckpointer, run_id: str, workers: list[BenchWorker]) -> tuple[float, str]:
        killed_at, victim = 0.0, ""
        async for event in get_flow(run_id, store=store).events():
            if killed_at and event.ts > killed_at:
                return event.ts - killed_at, victim
            if not killed_at and _is_third(event):
                with psycopg.connect(place.url) as connection:
                    victim = str(_read_one(connection, _OWNER, run_id))
                process = next(worker.process for worker in workers if worker.name == victim)
                process.send_signal(signal.SIGKILL)
                process.wait()
                killed_at = time.time()
        raise AssertionError("the flow ended before anybody was killed")

    async def go(workers: list[BenchWorker]) -> None:
        store = PostgresCheckpointer(place.url)
        for number in range(place.steps):
            handle = await start_flow("many_steps", 200, store=store)
            took_s, victim = await follow(store, handle.run_id, workers)
            took.append(took_s)
            await handle.cancel()
            workers[:] = [worker for worker in workers if worker.name != victim]
            workers.append(await asyncio.to_thread(_start_worker, place, f"worker-again-{number}"))
        store.close()

    with _workers(place, 2) as workers, reading() as found:
        asyncio.run(go(workers))
    took.sort()
    found.extra.update(median_s=took[len(took) // 2], worst_s=took[-1])
    return found


def _is_third(event: Event) -> bool:
    return event.payload.get("key") == "step 3"


async def _warm_up(place: Place) -> None:
    store = PostgresCheckpointer(place.url)
    handles = [await start_flow("one_step", number, store=store) for number in range(20)]
    for handle in handles:
        await handle.result()
    store.close()


def _read_one(connection: "psycopg.Connection[tuple[object, ...]]", sql: str, *values: str) -> object:
    row = connection.execute(sql.encode(), values or None).fetchone()
    return row[0] if row else None


# -- what a step and an idle worker cost ------------------------------------------------------------------------------

_WORKFLOWS = 10
_QUIET_S = 40.0
_OPEN_RUNS = "SELECT count(*) FROM runs WHERE state <> 'completed'"
_TRANSACTIONS = "SELECT sum(xact_commit) FROM pg_stat_database WHERE datname = current_database()"
_CONNECTIONS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
    "AND backend_type = 'client backend'"
)


def measure_costs(place: Place, idle_s: float = 20.0) -> dict[str, float]:
    """Rows, bytes of log and of tables and CPU of a worker per flow and workflow, and what an idle one takes; synced as
    by default.
    """
    costs: dict[str, float] = {}
    with psycopg.connect(place.url, autocommit=True) as connection, _workers(place, 1) as (worker,):
        asyncio.run(_warm_up(place))
        for name, flow, steps in (("flow", "one_step", 1), ("flow_of_50", "many_quick_steps", 50)):
            before = _read_state(connection, worker)
            asyncio.run(_do(place, flow, place.steps // steps, steps))
            after = _read_state(connection, worker)
            count = place.steps // steps
            costs |= {f"{name}_{key}": (after[key] - before[key]) / count for key in before}
        _run_workflows(place, connection, 3)
        before = _read_state(connection, worker)
        _run_workflows(place, connection, _WORKFLOWS)
        after = _read_state(connection, worker)
        costs |= {f"workflow_{key}": (after[key] - before[key]) / _WORKFLOWS for key in before}
        state = _read_state(connection, worker)
        time.sleep(_QUIET_S)  # a backend that has become idle reports its counters much later
        done, began = _read_one(connection, _TRANSACTIONS), time.monotonic()
        time.sleep(idle_s)
        spent = float(str(_read_one(connection, _TRANSACTIONS))) - float(str(done))
        costs["idle_transactions_per_s"] = spent / (time.monotonic() - began)
        idle = _read_state(connection, worker)
        for name in ("wal_bytes", "worker_s"):
            costs[f"idle_{name}_per_s"] = (idle[name] - state[name]) / (_QUIET_S + idle_s)
        costs["idle_connections"] = float(str(_read_one(connection, _CONNECTIONS)))
    return costs


async def _do(place: Place, flow: str, count: int, steps: int) -> None:
    store = PostgresCheckpointer(place.url)
    handles = [await start_flow(flow, steps, store=store) for _ in range(count)]
    for handle in handles:
        await handle.result()
    store.close()


def _read_state(connection: "psycopg.Connection[tuple[object, ...]]", worker: BenchWorker) -> dict[str, float]:
    """Rows of all tables, bytes of log written so far, bytes that the tables take with their indexes, and the seconds
    of CPU of the worker and of the processes that it has waited for.
    """
    tables = [str(name) for (name,) in connection.execute("SELECT relname FROM pg_stat_user_tables").fetchall()]
    rows = sum(int(str(_read_one(connection, f"SELECT count(*) FROM {name}"))) for name in tables)
    events = int(str(_read_one(connection, "SELECT count(*) FROM events")))
    size = "SELECT sum(pg_total_relation_size(relid)) FROM pg_stat_user_tables"
    wal, stored = (float(str(_read_one(connection, sql))) for sql in ("SELECT pg_current_wal_lsn() - '0/0'", size))
    fields = Path(f"/proc/{worker.process.pid}/stat").read_text().rpartition(") ")[2].split()
    worker_s = sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    return {"rows": rows, "events": events, "wal_bytes": wal, "stored_bytes": stored, "worker_s": worker_s}


def _run_workflows(place: Place, connection: "psycopg.Connection[tuple[object, ...]]", count: int) -> None:
    """Rehearsals of a small workflow, left to the worker."""
    repo = place.folder / "repo"
    if not repo.exists():
        repo.mkdir()
        (repo / "README.md").write_text("# Sample\n")
        for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "begin"]):
            git(repo, *words)
    environment = {
        **os.environ,
        "HOLDFAST_DATABASE_URL": place.url,
        "HOLDFAST_DATA_DIR": str(place.folder / "runs"),
    }
    words = ["run", "spec-and-review", "--repo", str(repo), "--requirements", "Add a flag.", "--simulate", "--detach"]
    for _ in range(count):
        subprocess.run([sys.executable, "-m", "holdfast", *words], env=environment, check=True, capture_output=True)
    while _read_one(connection, _OPEN_RUNS):
        time.sleep(0.01)


def main() -> None:
    """Measure the costs once on a server of this process's own, and print them."""
    import tempfile

    from benchmarks.server import Server, running

    with tempfile.TemporaryDirectory(prefix="hf-costs-") as folder, running(Path(folder)) as server:
        assert isinstance(server, Server), server
        with server.database() as url:
            print(json.dumps(measure_costs(Place(Path(folder), url, 1000)), indent=2))


if __name__ == "__main__":
    main()
