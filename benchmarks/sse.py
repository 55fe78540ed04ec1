"""How long an event takes from its append to every one of many clients of an event stream.

`python benchmarks/sse.py --clients 200`: the server writes and serves in one process, the clients are another. The time
begins before the commit, so the commit is part of it. On a busy machine compare the server's own time for an event and
client, `server_us`, which waits for nobody. `--all-runs` follows `/api/events` instead of one run, and
`--database-url` takes a Postgres database. It also times a page of the run list, with 50 runs and with none, against a
bare FastAPI route that gives an empty page.
"""

import argparse
import asyncio
import json
import multiprocessing
import re
import socket
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

SENT_AT = re.compile(rb'"sent_at":([0-9.]+)')


def serve(pipe: Any, folder: str, events: int, rate: float, database_url: str | None) -> None:
    asyncio.run(_serve(pipe, Path(folder), events, rate, database_url))


async def _serve(pipe: Any, folder: Path, events: int, rate: float, database_url: str | None) -> None:
    import uvicorn
    from fastapi import FastAPI

    from holdfast.api.app import create_app
    from holdfast.api.options import ServerOptions
    from holdfast.api.serve import to_uvicorn
    from holdfast.catalog import Catalog
    from holdfast.config import load_config
    from holdfast.runtime.events import create_event

    config = load_config(data_dir=folder / "data", workspace_root=folder, database_url=database_url)
    app = create_app(config, options=ServerOptions(has_auth=False, drives_runs=False))
    bare = FastAPI()
    bare.get("/")(lambda: {"items": [], "next_cursor": None})
    async with AsyncExitStack() as stack:
        ports = []
        for each in (app, bare):
            listening = socket.socket()
            listening.bind(("127.0.0.1", 0))
            server = uvicorn.Server(to_uvicorn(each))
            task = asyncio.create_task(server.serve(sockets=[listening]))
            stack.push_async_callback(_stop, server, task)
            while not server.started:
                await asyncio.sleep(0.01)
            ports.append(listening.getsockname()[1])
        inside = await app.state.holder.get()
        engine = await inside.engines.for_repository(folder, is_simulated=True)
        template = Catalog.for_repository(None, config.config_dir).get_workflow("spec-and-review").definition
        for _ in range(50):
            run_id = await engine.create(template, repo_path=folder)
        pipe.send((ports, run_id))
        await asyncio.to_thread(pipe.recv)
        before = time.process_time()
        for _ in range(events):
            event = create_event(run_id, "agent.progress", sent_at=time.time())
            await inside.journal.append(run_id, [event])
            await asyncio.sleep(1 / rate)
        pipe.send(time.process_time() - before)
        await asyncio.to_thread(pipe.recv)


async def _stop(server: Any, task: "asyncio.Task[None]") -> None:
    server.should_exit = True
    await task


async def follow(port: int, path: str, count: int, is_ready: asyncio.Event, seen: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    found = 0
    while found < count:
        line = await reader.readline()
        is_ready.set()
        if stamp := SENT_AT.search(line):
            seen.append(time.time() - float(stamp.group(1)))
            found += 1
    writer.close()


async def measure(pipe: Any, clients: int, events: int, *, has_all: bool, has_lists: bool) -> dict[str, float]:
    (api_port, bare_port), run_id = await asyncio.to_thread(pipe.recv)
    path = "/api/events" if has_all else f"/api/runs/{run_id}/events"
    seen: list[float] = []
    ready = [asyncio.Event() for _ in range(clients)]
    following = [asyncio.create_task(follow(api_port, path, events, one, seen)) for one in ready]
    for one in ready:
        await one.wait()
    await asyncio.sleep(1)
    pipe.send("go")
    await asyncio.gather(*following)
    seen.sort()
    worked_s = await asyncio.to_thread(pipe.recv)
    lists = await measure_lists(api_port, bare_port) if has_lists else {}
    pipe.send("stop")
    return {
        "clients": clients,
        "events": events,
        "seen": len(seen),
        "p50_ms": round(seen[len(seen) // 2] * 1000, 2),
        "p99_ms": round(seen[int(len(seen) * 0.99)] * 1000, 2),
        "max_ms": round(seen[-1] * 1000, 2),
        "server_us": round(worked_s * 1e6 / len(seen), 1),
        **lists,
    }


async def measure_lists(api_port: int, bare_port: int) -> dict[str, float]:
    return {
        "run_list_of_50_rps": round(await requests_per_second(api_port, "/api/runs?limit=50")),
        "empty_run_list_rps": round(await requests_per_second(api_port, "/api/runs?limit=50&state=failed")),
        "bare_route_rps": round(await requests_per_second(bare_port, "/")),
    }


async def requests_per_second(port: int, path: str, seconds: float = 2.0) -> float:
    import httpx

    count, until = 0, time.perf_counter() + seconds
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:

        async def ask() -> None:
            nonlocal count
            while time.perf_counter() < until:
                (await client.get(path)).raise_for_status()
                count += 1

        await asyncio.gather(*(ask() for _ in range(8)))
    return count / seconds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--events", type=int, default=200)
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--all-runs", action="store_true")
    parser.add_argument("--no-lists", action="store_true", help="leave the run list out")
    parser.add_argument("--database-url")
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    with tempfile.TemporaryDirectory(prefix="hf-sse-") as folder:
        server = context.Process(
            target=serve, args=(there, folder, arguments.events, arguments.rate, arguments.database_url)
        )
        server.start()
        found = measure(
            here, arguments.clients, arguments.events, has_all=arguments.all_runs, has_lists=not arguments.no_lists
        )
        print(json.dumps(asyncio.run(found), indent=2))
        server.join(timeout=30)
        if server.is_alive():
            server.kill()


if __name__ == "__main__":
    main()
