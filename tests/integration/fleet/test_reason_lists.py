"""Why runs stand still, in lists: the sentence that each run's own page says, read for all of a page at once."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, text
from tests.support.api.server_world import Api
from tests.support.fleet_machines import to_environment
from tests.support.progress_limit import waiting_until
from tests.support.terminal import HOLDFAST, shell

from holdfast.persistence.db import Database
from holdfast.persistence.due.still_runs import Look
from holdfast.persistence.fleet import WorkerFacts, note_look, register, unregister

LACKS_KEY = Look("alpha", "ANTHROPIC_API_KEY", "It could not be driven.")
NO_REPOSITORY = Look("alpha", "", "The repository is out of reach.")


def worker(name: str, *queues: str) -> WorkerFacts:
    return WorkerFacts(name, f"process-{name}", name, "1", 8, queues or ("runs",), ())


async def read_reasons(office: Api, folder: Path, url: str) -> dict[str, str | None]:
    """Return by run what the list says over HTTP, which the commands and its own page say too."""
    items = (await office.viewer.get("/api/runs")).json()["items"]
    listed = {item["run_id"]: item["waiting_for"] for item in items}
    details = {run_id: (await office.viewer.get(f"/api/runs/{run_id}")).json()["waiting_for"] for run_id in listed}
    environment = to_environment(folder, url, "laptop")
    done = await asyncio.to_thread(shell, "runs", "list", "--json", env=environment)
    table = await asyncio.to_thread(shell, "runs", "list", env={**environment, "COLUMNS": "200"})
    rows = {row["run_id"]: row["waiting_for"] for row in json.loads(done.stdout)}
    assert listed == details == rows
    assert all(reason is None or reason in table.stdout for reason in rows.values()), table.stdout
    assert all(item["waiting_for"] is None or item["now"] == item["waiting_for"] for item in items)
    return listed


async def test_lists_say_of_each_run_what_its_page_says(office: Api, folder: Path, fleet_url: str) -> None:
    db: Database = (await office.app.state.holder.get()).db
    first, second = [await office.start() for _ in range(2)]
    on_gpu = await office.start(queue="gpu")
    nobody = "No worker is taking runs. Start one with `holdfast worker`."
    assert set((await read_reasons(office, folder, fleet_url)).values()) == {nobody}

    await register(db, worker("alpha"))
    assert await read_reasons(office, folder, fleet_url) == {
        first: None,
        second: None,
        on_gpu: "No worker takes queue gpu.",
    }
    await note_look(db, first, LACKS_KEY, wait_s=60.0)
    await note_look(db, second, NO_REPOSITORY, wait_s=60.0)
    assert await read_reasons(office, folder, fleet_url) == {
        first: "One worker looked; it lacks ANTHROPIC_API_KEY.",
        second: "Worker alpha: The repository is out of reach.",
        on_gpu: "No worker takes queue gpu.",
    }
    await unregister(db, worker("alpha"))
    assert set((await read_reasons(office, folder, fleet_url)).values()) == {nobody}


async def test_a_list_says_nothing_of_a_run_that_somebody_has_or_that_waits_for_its_turn(
    office: Api, folder: Path, fleet_url: str
) -> None:
    server = await office.app.state.holder.get()
    claimed, waiting, newer = [await office.start() for _ in range(3)]
    claim = await server.journal.claim(claimed)
    async with server.db.session() as session:
        turn = "UPDATE runs SET waits_for = 'Waits for a place of workflow notes.' WHERE id = :id"
        await session.execute(text(turn), {"id": waiting})
        await session.execute(text("UPDATE runs SET format = 9 WHERE id = :id"), {"id": newer})
        await session.commit()
    try:
        items = (await office.viewer.get("/api/runs")).json()["items"]
        listed = {item["run_id"]: item["now"] for item in items}
        done = await asyncio.to_thread(shell, "runs", "list", "--json", env=to_environment(folder, fleet_url, "laptop"))
    finally:
        await server.journal.release(claim)

    rows = {row["run_id"]: row["waiting_for"] for row in json.loads(done.stdout)}
    assert (listed[claimed], rows[claimed]) == ("Queued: a server or worker takes it", None)
    assert listed[waiting] == rows[waiting] == "Waits for a place of workflow notes."
    assert listed[newer] == rows[newer]
    assert listed[newer].startswith("A newer holdfast has written it, in format 9;")


@pytest.mark.parametrize("count", [1, 5])
async def test_a_page_asks_as_much_for_many_runs_as_for_one(office: Api, count: int) -> None:
    for _ in range(count):
        await office.start()
    await office.viewer.get("/api/runs")
    heard: list[str] = []

    def hear(_connection: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        heard.append(statement)

    event.listen(Engine, "before_cursor_execute", hear)
    try:
        page = (await office.viewer.get("/api/runs")).json()
    finally:
        event.remove(Engine, "before_cursor_execute", hear)

    assert [item["waiting_for"] for item in page["items"]] == [
        "No worker is taking runs. Start one with `holdfast worker`."
    ] * count
    assert len([sql for sql in heard if "run_looks" in sql]) == 1
    assert len([sql for sql in heard if "FROM workers" in sql]) == 1


async def test_who_watches_is_told_why_a_run_stands_still_and_again_when_the_reason_changes(
    office: Api, folder: Path, fleet_url: str
) -> None:
    db: Database = (await office.app.state.holder.get()).db
    run_id = await office.start()
    watching = await asyncio.create_subprocess_exec(
        *(HOLDFAST, "runs", "watch", run_id),
        env=to_environment(folder, fleet_url, "laptop"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert watching.stderr is not None

    async def live() -> None:
        while True:  # a sign of life counts for some seconds only
            await register(db, worker("alpha", "gpu"))
            await asyncio.sleep(0.5)

    try:
        with waiting_until("both reasons are said"):
            await read_until(watching.stderr, "No worker is taking runs. Start one with `holdfast worker`.")
            living = asyncio.create_task(live())
            await read_until(watching.stderr, "No worker takes queue runs.")
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)
    finally:
        watching.kill()
        await watching.wait()


async def read_until(stream: asyncio.StreamReader, text: str) -> None:
    while text not in (line := (await stream.readline()).decode()):
        assert line, f"it ended before it said {text!r}"
