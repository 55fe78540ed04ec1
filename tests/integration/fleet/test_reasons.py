"""Why a run stands still, said by whoever does not drive it."""

import asyncio
import json
from pathlib import Path

from sqlalchemy import text
from tests.support.api.server_world import Api
from tests.support.fleet_machines import FLOWS, machines, to_environment
from tests.support.progress_limit import waiting_until
from tests.support.terminal import shell

from holdfast.flows.service.start import start_flow
from holdfast.persistence.db import Database
from holdfast.persistence.fleet import read_looks
from holdfast.runtime.clock import now
from holdfast.runtime.events import EventKind, create_event
from holdfast.runtime.run_fold.provider_wait import ProviderWait
from holdfast.runtime.stores import open_journal


async def test_for_which_provider_a_run_waits_is_said_by_every_server_and_command(
    office: Api, folder: Path, fleet_url: str
) -> None:
    run_id = await office.start()
    other = Database(fleet_url)
    async with other.session() as session:
        await session.execute(text("UPDATE runs SET state = 'running' WHERE id = :id"), {"id": run_id})
        await session.commit()
    environment = to_environment(folder, fleet_url, "laptop")

    async def read() -> list[str | None]:
        """What the page, the list, and the commands say."""
        detail = (await office.viewer.get(f"/api/runs/{run_id}")).json()
        listed = (await office.viewer.get("/api/runs")).json()["items"][0]
        commands = (("show", run_id, "--json"), ("list", "--json"), ("show", run_id), ("list",))
        answers = [await asyncio.to_thread(shell, "runs", *words, env=environment) for words in commands]
        assert [answer.returncode for answer in answers] == [0] * 4
        facts, (row,) = (json.loads(answer.stdout) for answer in answers[:2])
        said = {entry["waiting_for"] for entry in (detail, listed, facts, row)}
        if (reason := said.pop()) is not None:
            assert reason in detail["telling"]["text"]
            assert listed["now"] == reason
            assert all(reason in answer.stdout for answer in answers[2:])
        return [reason, *said]

    async with open_journal(other.store) as journal:
        claim = await journal.claim(run_id)

        async def write(kind: str, **payload: object) -> None:
            await journal.append(run_id, [create_event(run_id, kind, lane_id="first", **payload)], claim=claim)

        held = ProviderWait("Waits for openai: too many requests.", now() + 60.0)
        await write(EventKind.AGENT_PROGRESS, **held.to_payload())
        assert await read() == [held.describe()]

        share = ProviderWait("Waits for one of 3 calls at a time to openai.")
        await write(EventKind.AGENT_PROGRESS, **share.to_payload())
        assert await read() == [share.text]

        await write(EventKind.MODEL_REQUEST, key="k")
        assert await read() == [None]
        await journal.release(claim)
    await other.dispose()


async def test_workers_leave_a_flow_of_a_newer_format_alone_and_everybody_says_why(
    office: Api, folder: Path, fleet_url: str
) -> None:
    (folder / "counting.py").write_text(FLOWS)
    server = await office.app.state.holder.get()
    for run_id in ("newer", "known"):
        await start_flow("nap", run_id=run_id, store=server.journal.store)
    async with server.db.session() as session:
        await session.execute(text("UPDATE flow_runs SET format = 9 WHERE run_id = 'newer'"))
        await session.commit()
    with machines(folder, fleet_url, "alpha", arguments=("--flows", str(folder / "counting.py"))):
        with waiting_until("the other one is begun, and this one was looked at"):
            while (await server.journal.read("known"))[-1].kind != "timer.started" or not await read_looks(
                server.db, "newer"
            ):
                await asyncio.sleep(0.05)
        detail = (await office.viewer.get("/api/runs/newer")).json()
        listed = {item["run_id"]: item for item in (await office.viewer.get("/api/runs")).json()["items"]}
        environment = to_environment(folder, fleet_url, "laptop")
        answer = await asyncio.to_thread(shell, "runs", "show", "newer", env=environment)
    assert detail["waiting_for"].startswith("A newer holdfast has written it, in format 9;")
    assert listed["newer"]["waiting_for"] == detail["waiting_for"]
    assert detail["waiting_for"] in answer.stdout
    assert [event.kind for event in await server.journal.read("newer")] == ["run.created"]
