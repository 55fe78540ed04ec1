"""A run that becomes due has its job in the same transaction: whoever dies next, a worker hears of it at once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from tests.support.api.server_world import Api
from tests.support.fleet_machines import machines, to_environment
from tests.support.terminal import shell

from holdfast.config import load_config
from holdfast.fleet.assembly import make_queue
from holdfast.fleet.schedules import add_schedule
from holdfast.persistence.db import Database
from holdfast.persistence.schedule_table import Schedule
from holdfast.runtime.journal import Journal

ANSWER_KIND = "human.approval.received"


class DiesHere(Exception):
    """The process is gone, as far as the database can tell."""


async def read(db: Database, sql: str, **params: Any) -> list[tuple[Any, ...]]:
    async with db.session() as session:
        rows = [tuple(row) for row in await session.execute(text(sql), params)]
        await session.commit()
    return rows


async def list_jobs(db: Database) -> list[str]:
    return [run_id for (run_id,) in await read(db, "SELECT queueing_lock FROM procrastinate_jobs ORDER BY id")]


async def start_asking(office: Api, folder: Path, url: str, count: int = 1) -> list[tuple[str, str]]:
    """Runs that wait for an answer, with their approvals; nobody is there any more who drives."""
    db = (await office.app.state.holder.get()).db
    with machines(folder, url, "alpha"):
        runs = [await office.start(workflow="asking-notes") for _ in range(count)]
        for run_id in runs:
            await office.wait_for(run_id, "paused")
    await read(db, "DELETE FROM procrastinate_jobs RETURNING id")
    approvals = dict(await read(db, "SELECT run_id, id FROM approvals WHERE state = 'pending'"))
    return [(run_id, approvals[run_id]) for run_id in runs]


def die_after(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process die as soon as an event of this kind is written, and what stands beside it."""
    append: Callable[..., Any] = Journal.append

    async def append_and_die(self: Journal, run_id: str, events: Any, **more: Any) -> Any:
        stored = await append(self, run_id, events, **more)
        if any(event.kind == kind for event in events):
            raise DiesHere
        return stored

    monkeypatch.setattr(Journal, "append", append_and_die)


async def test_an_answer_is_never_without_the_job_of_its_run(
    office: Api, folder: Path, fleet_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = (await office.app.state.holder.get()).db
    ((run_id, approval_id),) = await start_asking(office, folder, fleet_url)

    die_after(ANSWER_KIND, monkeypatch)
    answer = await office.approver.post(f"/api/approvals/{approval_id}", json={"action": "approve"})
    assert answer.status_code == 500

    assert await read(db, "SELECT state, wake IS NOT NULL FROM runs") == [("paused", True)]
    assert await read(db, "SELECT state FROM approvals") == [("decided",)]
    assert await list_jobs(db) == [run_id]


async def test_the_first_of_two_answers_lets_nothing_go_on(office: Api, folder: Path, fleet_url: str) -> None:
    db = (await office.app.state.holder.get()).db
    with machines(folder, fleet_url, "alpha"):
        run_id = await office.start(workflow="critical-notes")
        await office.wait_for(run_id, "paused")
    await read(db, "DELETE FROM procrastinate_jobs RETURNING id")
    ((approval_id,),) = await read(db, "SELECT id FROM approvals")

    answers = []
    for client in (office.approver, office.admin):
        answer = await client.post(f"/api/approvals/{approval_id}", json={"action": "approve"})
        assert answer.status_code == 200, answer.text
        answers.append((await list_jobs(db), await read(db, "SELECT wake IS NOT NULL FROM runs")))
    assert answers == [([], [(False,)]), ([run_id], [(True,)])]


async def test_more_money_is_never_without_the_job_of_the_run_that_waits_for_it(
    office: Api, folder: Path, fleet_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = (await office.app.state.holder.get()).db
    await make_queue(db).repair()
    waiting, pending = await office.start(), await office.start()
    await read(db, "DELETE FROM procrastinate_jobs RETURNING id")
    change = "UPDATE runs SET state = 'paused', pause_reason = 'budget' WHERE id = :id RETURNING id"
    await read(db, change, id=waiting)

    die_after("budget.raised", monkeypatch)
    for run_id in (waiting, pending):
        answer = await office.operator.post(f"/api/runs/{run_id}/budget", json={"amount_usd": 1})
        assert answer.status_code == 500

    assert await read(db, "SELECT id FROM runs WHERE wake IS NOT NULL") == [(waiting,)]
    assert await list_jobs(db) == [waiting]


async def test_what_the_command_line_leaves_to_others_has_its_job(office: Api, folder: Path, fleet_url: str) -> None:
    db = (await office.app.state.holder.get()).db
    (answered, approval_id), (resumed, _) = await start_asking(office, folder, fleet_url, count=2)
    environment = to_environment(folder, fleet_url, "laptop")

    def run(*words: str, code: int = 0) -> Any:
        done = shell(*words, "--json", env=environment)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    options = ("--repo", str(office.repo), "--simulate", "--yes", "--detach")
    started = run("run", "notes", *options, "--requirements", "x", "--queue", "gpu", "--priority", "3")
    later = run("run", "notes", *options, "--requirements", "x", "--at", "2099-01-01T00:00")
    run("approve", approval_id)
    run("resume", resumed, "--detach", code=3)  # an answer is missing
    forked = run("fork", answered, "first", "--detach")

    jobs = await read(db, "SELECT queueing_lock, queue_name, priority FROM procrastinate_jobs ORDER BY id")
    assert jobs == [
        (started["run_id"], "gpu", 3),
        (answered, "runs", 0),
        (resumed, "runs", 0),
        (forked["run_id"], "runs", 0),
    ]
    assert later["run_id"] not in [run_id for run_id, _, _ in jobs]  # the sweep knows the time


async def test_what_a_schedule_starts_has_its_job(office: Api, folder: Path) -> None:
    db = (await office.app.state.holder.get()).db
    await make_queue(db).repair()
    config = load_config(data_dir=folder / "data", workspace_root=folder / "work")
    options = {"simulate": True, "requirements_md": "x", "queue": "gpu"}
    facts = {"name": "monthly", "target": "notes", "cron": "0 0 1 * *", "repo_path": str(office.repo)}
    schedule = Schedule(**facts, options=options)
    await add_schedule(db, config, schedule)
    answer = await office.operator.post("/api/schedules/monthly/runs")
    assert answer.status_code == 202, answer.text
    jobs = await read(db, "SELECT queueing_lock, queue_name FROM procrastinate_jobs")
    assert jobs == [(answer.json()["run_id"], "gpu")]
