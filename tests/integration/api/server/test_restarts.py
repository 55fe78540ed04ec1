"""Servers that die, stop and share: their runs go on, and every client's log still equals the journal."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import httpx
from tests.support.api.server_process import ServerProcess, serving
from tests.support.api.server_world import make_tokens
from tests.support.api.stream_clients import Follower
from tests.support.postgres_server import fresh_schema
from tests.support.progress_limit import until

from holdfast.config import load_config
from holdfast.runtime.stores import open_store


async def admin_token(folder: Path, **settings: Any) -> str:
    return (await make_tokens(load_config(data_dir=folder / "data", **settings), ["admin"]))["admin"]


def client_of(server: ServerProcess, token: str) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.AsyncClient(base_url=server.url, headers=headers, timeout=None)


async def start(client: httpx.AsyncClient, folder: Path, *, key: str | None = None) -> str:
    body = {"workflow": "notes", "repo_path": str(folder / "work" / "repo"), "simulate": True}
    answer = await client.post("/api/runs", json=body, headers={"Idempotency-Key": key} if key else {})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["run_id"])


async def wait_for_file(path: Path) -> None:
    await until(path.exists, f"there is {path.name}")


async def test_a_killed_server_goes_on_when_it_is_back_and_a_stopped_one_gives_its_runs_up(folder: Path) -> None:
    token = await admin_token(folder)
    (folder / "gates" / "second.closed").touch()
    with serving(folder) as first:
        async with client_of(first, token) as client:
            run_id = await start(client, folder, key="k")
            follower = Follower(token, f"/api/runs/{run_id}/events", run_id, stay=1000)
            follower.servers = [first.url]
            following = asyncio.create_task(follower.follow())
            await wait_for_file(folder / "gates" / f"{run_id}.second.reached")
        first.end(signal.SIGKILL)
    (folder / "gates" / "second.closed").unlink()

    with serving(folder) as second:
        follower.servers = [second.url]
        log = await following
        (folder / "gates" / "first.closed").touch()
        async with client_of(second, token) as client:
            again = await start(client, folder, key="k")
            stopped_id = await start(client, folder)
            await wait_for_file(folder / "gates" / f"{stopped_id}.first.reached")
            async with client.stream("GET", f"/api/runs/{stopped_id}/events") as stream:
                await anext(stream.aiter_lines())
                code = await asyncio.to_thread(second.end, signal.SIGTERM)

    store = open_store(str(folder / "data" / "holdfast.db"))
    journal = [event.to_dict() for event in store.list_events(run_id)]
    kinds = [event.kind for event in store.list_events(stopped_id)]
    store.release(store.claim(stopped_id))
    store.close()
    assert log == journal
    assert (log[-1]["kind"], again) == ("run.completed", run_id)
    assert code in (0, -signal.SIGTERM)
    assert not {"run.paused", "run.failed", "run.cancelled"} & set(kinds)


async def test_two_servers_on_one_postgres_share_their_runs(folder: Path, postgres_url: str) -> None:
    with fresh_schema(postgres_url) as url:
        token = await admin_token(folder, database_url=url)
        settings = {"HOLDFAST_DATABASE_URL": url}
        (folder / "gates" / "second.closed").touch()
        with serving(folder, **settings) as one, serving(folder, **settings) as two:
            async with client_of(one, token) as client:
                runs = [await start(client, folder) for _ in range(6)]
            followers = [Follower(token, f"/api/runs/{run_id}/events", run_id, stay=1000) for run_id in runs]
            for follower in followers:
                follower.servers = [one.url, two.url]
            following = [asyncio.create_task(follower.follow()) for follower in followers]
            for run_id in runs:
                await wait_for_file(folder / "gates" / f"{run_id}.second.reached")
            one.end(signal.SIGKILL)
            for follower in followers:
                follower.servers = [two.url]
            (folder / "gates" / "second.closed").unlink()
            logs = await asyncio.gather(*following)
        store = open_store(url)
        journals = [[event.to_dict() for event in store.list_events(run_id)] for run_id in runs]
        store.close()

    assert logs == journals
    assert {log[-1]["kind"] for log in logs} == {"run.completed"}
