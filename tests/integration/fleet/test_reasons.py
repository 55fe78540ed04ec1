"""Why a run stands still, said by whoever does not drive it."""

import asyncio
import json
from pathlib import Path

from sqlalchemy import text
from tests.support.api.server_world import Api
from tests.support.fleet_machines import to_environment
from tests.support.terminal import shell

from holdfast.persistence.db import Database
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
        shown, (row,) = (json.loads(answer.stdout) for answer in answers[:2])
        said = {entry["waiting_for"] for entry in (detail, listed, shown, row)}
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

        await write(EventKind.AGENT_PROGRESS, **ProviderWait("Waits for one of 3 calls at a time to openai.").to_payload())
        assert await read() == ["Waits for one of 3 calls at a time to openai."]

        await write(EventKind.MODEL_REQUEST, key="k")
        assert await read() == [None]
        await journal.release(claim)
    await other.dispose()
