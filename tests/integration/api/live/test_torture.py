"""Streams under torture: many clients that leave at random, servers that are killed; each log equals the journal."""

import asyncio
import os
import random
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.api.server.test_restarts import admin_token
from tests.support.api.server_process import ServerProcess, free_port, serving
from tests.support.api.stream_clients import Follower
from tests.support.crash.points import IS_TORTURE, SEED
from tests.support.postgres_server import fresh_schema

from holdfast.runtime.stores import open_store

CLIENTS, RUNS, KILLS = (200, 60, 8) if IS_TORTURE else (20, 4, 1)


async def start_runs(servers: Sequence[ServerProcess], token: str, folder: Path, count: int) -> list[str]:
    """As a program does that must not start anything twice: with a key, again and again until there is an answer."""
    started: list[str] = []
    body = {"workflow": "notes", "repo_path": str(folder / "work" / "repo"), "simulate": True}
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=None) as client:
        while len(started) < count:
            url = servers[len(started) % len(servers)].url
            try:
                answer = await client.post(f"{url}/api/runs", json=body, headers={"Idempotency-Key": f"{len(started)}"})
                assert answer.status_code == 202, answer.text
                started.append(answer.json()["run_id"])
            except httpx.TransportError:
                await asyncio.sleep(0.05)
    return started


async def kill_and_restart(servers: list[ServerProcess], folder: Path, settings: dict[str, str]) -> None:
    """One after the other dies, and comes back under its old address."""
    chance = random.Random(f"kills {SEED}")
    for _ in range(KILLS):
        await asyncio.sleep(chance.uniform(0.2, 1.0))
        number = chance.randrange(len(servers))
        port = servers[number].port
        servers[number].end(signal.SIGKILL)
        servers[number] = await asyncio.to_thread(
            ServerProcess, folder, **{**settings, "HOLDFAST_TEST_PORT": str(port)}
        )


def read_journals(address: str, run_ids: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    store = open_store(address)
    try:
        return {run_id: [event.to_dict() for event in store.list_events(run_id)] for run_id in run_ids}
    finally:
        store.close()


async def torture(folder: Path, address: str, token: str, settings: dict[str, str], how_many: int) -> None:
    servers = [ServerProcess(folder, **{**settings, "HOLDFAST_TEST_PORT": str(free_port())}) for _ in range(how_many)]
    urls = [server.url for server in servers]
    try:
        starting = asyncio.create_task(start_runs(servers, token, folder, RUNS))
        of_all = [Follower(token, "/api/events", f"{SEED} all {number}") for number in range(CLIENTS // 4)]
        is_over = asyncio.Event()
        for follower in of_all:
            follower.servers = urls
        following_all = [asyncio.create_task(follower.follow(is_over)) for follower in of_all]
        run_ids = await starting
        of_one = [
            Follower(token, f"/api/runs/{run_ids[number % RUNS]}/events", f"{SEED} {number}", stay=8)
            for number in range(CLIENTS - len(of_all))
        ]
        for follower in of_one:
            follower.servers = urls
        following = [asyncio.create_task(follower.follow()) for follower in of_one]
        await kill_and_restart(servers, folder, settings)
        logs = await asyncio.gather(*following)
        journals = await asyncio.to_thread(read_journals, address, run_ids)
        total = sum(map(len, journals.values()))
        while any(len(follower.log) < total for follower in of_all):
            await asyncio.sleep(0.05)
        is_over.set()
        logs_of_all = await asyncio.gather(*following_all)
    finally:
        for server in servers:
            server.end()

    assert [journal[-1]["kind"] for journal in journals.values()] == ["run.completed"] * RUNS
    for number, log in enumerate(logs):
        assert log == journals[run_ids[number % RUNS]]
    for follower, log in zip(of_all, logs_of_all, strict=True):
        assert {run_id: [event for event in log if event["run_id"] == run_id] for run_id in run_ids} == journals
        assert follower.ids == sorted(set(follower.ids))
        assert log == logs_of_all[0]
    assert sum(follower.visits for follower in of_one) > len(of_one)  # they did come and go


async def test_a_server_that_is_killed_and_restarted(folder: Path) -> None:
    token = await admin_token(folder)

    await torture(folder, str(folder / "data" / "holdfast.db"), token, {}, how_many=1)


async def test_two_servers_on_one_postgres(folder: Path, postgres_url: str) -> None:
    with fresh_schema(postgres_url) as url:
        token = await admin_token(folder, database_url=url)

        await torture(folder, url, token, {"HOLDFAST_DATABASE_URL": url}, how_many=2)


def read_memory_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError(f"no memory of {pid}")


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="memory is read where Linux tells it")
async def test_many_runs_over_http_finish_in_flat_memory(folder: Path) -> None:
    """A first part warms caches and the allocator up; what comes after must not cost memory per run."""
    first, rest, allowed_kb = (250, 250, 20_000) if IS_TORTURE else (8, 12, 15_000)
    token = await admin_token(folder)
    settings = {"HOLDFAST_TEST_AGENTS": "simulated", "HOLDFAST_MAX_PARALLEL_RUNS": "8"}
    with serving(folder, **settings) as server:
        before = await run_all(server, token, folder, 0, first)
        warm_kb = read_memory_kb(server.pid)
        after = await run_all(server, token, folder, first, rest)
        grown_kb = read_memory_kb(server.pid) - warm_kb

    assert before + after == ["completed"] * (first + rest)
    print(f"{warm_kb} kB after {first} runs, {grown_kb} kB more after {rest} more")
    assert grown_kb < allowed_kb


async def run_all(server: ServerProcess, token: str, folder: Path, start: int, count: int) -> list[str]:
    """Start so many runs, and return their states once all are over."""
    body = {"workflow": "notes", "repo_path": str(folder / "work" / "repo"), "simulate": True}
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=None) as client:
        run_ids = []
        for number in range(start, start + count):
            answer = await client.post("/api/runs", json={**body, "requirements_md": f"Write note {number}."})
            run_ids.append(answer.json()["run_id"])
        followers = [Follower(token, f"/api/runs/{run_id}/events", run_id, stay=10_000) for run_id in run_ids]
        for follower in followers:
            follower.servers = [server.url]
        for at in range(0, count, 50):  # people watch as well
            await asyncio.gather(*(follower.follow() for follower in followers[at : at + 50]))
        return [(await client.get(f"/api/runs/{run_id}")).json()["state"] for run_id in run_ids]
