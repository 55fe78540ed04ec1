"""Limits for all processes and workers from the shell: set, listed beside a setting that differs, removed, refused."""

import asyncio
import re
from pathlib import Path

import pytest
from sqlalchemy import text
from tests.acceptance.cli.conftest import Command
from tests.support.pooler import running_pooler
from tests.support.postgres_server import fresh_schema

from holdfast.persistence.db import Database
from holdfast.persistence.fleet import WorkerFacts, register


def test_limits_are_set_listed_with_what_differs_here_and_removed(
    holdfast: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert holdfast("limits", "set", "workflow", "release", "2").out == "Limit: 2 runs at a time of workflow release.\n"
    alone = holdfast("limits", "set", "provider", "openai", "1").out
    assert alone == "Limit: 1 call at a time to each server of openai.\n"
    holdfast("limits", "remove", "provider", "openai")
    assert holdfast("limits", "set", "runs", "1000000").out == "Limit: 1000000 runs at a time in all.\n"
    assert re.search(r"runs +1000000 ", holdfast("limits", "list").out)
    holdfast("limits", "remove", "runs")
    holdfast("limits", "set", "day", "3.5")
    monkeypatch.setenv("HOLDFAST_DAY_BUDGET_USD", "20")

    listed = holdfast("limits", "list").out
    assert "day_budget_usd is 20 here; $3.50 a day was set for all processes, and counts." in listed
    assert holdfast("budget", "--json").json["day_limit_usd"] == 3.5
    assert "$3.50 a day was set for all processes" in holdfast("doctor").out
    limits = holdfast("limits", "list", "--json").json
    assert [(limit["kind"], limit["name"], limit["amount"]) for limit in limits] == [
        ("day", "", 3.5),
        ("workflow", "release", 2),
    ]

    assert holdfast("limits", "remove", "workflow", "release").code == 0
    assert holdfast("limits", "remove", "day", "--json").json == {"kind": "day", "name": "", "state": "removed"}
    assert holdfast("limits", "list", "--json").json == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("set", "runs", "0"), "A limit is a whole number from 1 to 1000000, not 0."),
        (("set", "workflow", "release", "1.5"), "A limit is a whole number from 1 to 1000000, not 1.5."),
        (("set", "day", "0"), "A day's limit is an amount of dollars from $0.000001 to $1000000, not $0."),
        (("set", "day", "0.0000001"), "from $0.000001 to $1000000, not $0.0000001."),
        (("set", "day", "2000000"), "from $0.000001 to $1000000, not $2000000."),
        (("set", "runs", "1e7"), "A limit is a whole number from 1 to 1000000, not 10000000."),
        (("set", "workflow", "3"), "Name the workflow."),
        (("set", "runs", "many"), "'many' is no number."),
        (("set", "wokflow", "release", "2"), "Did you mean 'workflow'?"),
        (("set", "provider", "nobody", "2"), "'nobody' is no backend."),
        (("set", "provider", "opnai", "3"), "'opnai' is no backend. Did you mean 'openai'?"),
        (("remove", "runs"), "There is no limit runs."),
    ],
)
def test_what_is_no_limit_is_one_line_and_nothing_is_written(
    holdfast: Command, words: tuple[str, ...], message: str
) -> None:
    refused = holdfast("limits", *words)
    assert (refused.code, message in refused.err) == (2, True), refused.err
    assert holdfast("limits", "list", "--json").json == []


def test_a_worker_needs_postgres_and_a_name_that_is_there(holdfast: Command, tmp_path: Path) -> None:
    refused = holdfast("worker")
    assert refused.code == 1
    assert "config_invalid: A worker needs a Postgres database" in refused.err
    assert "holdfast serve" in refused.err
    assert not (tmp_path / "data").exists()
    assert "On SQLite holdfast serve drives runs itself" in holdfast("workers").out
    gone = holdfast("workers", "drain", "nobody")
    assert (gone.code, "There is no worker 'nobody'." in gone.err) == (2, True)


def test_workers_are_listed_and_told_to_end_by_their_names(
    holdfast: Command, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = WorkerFacts("build-1", "process", "machine-a", "1.2", 4, ("runs", "gpu"), ("count",))

    async def add() -> None:
        db = Database(url)
        await db.init_schema()
        await register(db, facts)
        async with db.session() as session:  # it stays alive, however long this takes
            await session.execute(text("UPDATE workers SET seen_at = seen_at + 3600"))
            await session.commit()
        await db.dispose()

    with fresh_schema(postgres_url) as url:
        monkeypatch.setenv("HOLDFAST_DATABASE_URL", url)
        assert "No worker is taking runs." in holdfast("workers").out
        asyncio.run(add())
        (listed,) = holdfast("workers", "--json").json
        assert holdfast("workers", "drain", "build-1", "--json").json == {"name": "build-1", "is_draining": True}
        drained = holdfast("workers").out
    found = {name: listed[name] for name in ("name", "machine", "version", "slots", "driven", "queues", "flows")}
    assert list(found.values()) == ["build-1", "machine-a", "1.2", 4, 0, ["runs", "gpu"], ["count"]]
    assert (listed["is_alive"], listed["is_draining"], listed["since"][:2]) == (True, False, "20")
    assert "0 of 4" in drained
    assert "draining" in drained


def test_a_run_is_not_made_for_a_queue_or_a_time_that_is_none(holdfast: Command, repo: Path) -> None:
    run = ("run", "spec-and-review", "--repo", str(repo), "--simulate", "--requirements", "x", "--detach")
    wrong = holdfast(*run, "--queue", "gpu")
    assert (wrong.code, "There is no queue 'gpu'." in wrong.err) == (2, True), wrong.err
    over = holdfast(*run, "--at", "2026-01-01T00:00Z")
    assert (over.code, "time_passed: 2026-01-01T00:00:00.000Z is over." in over.err) == (2, True), over.err
    late = holdfast(*run, "--at", "soon")
    assert (late.code, "'soon' is no time." in late.err) == (2, True), late.err
    assert holdfast("runs", "list", "--json").json == []


def test_a_worker_takes_only_from_queues_that_runs_can_name(
    holdfast: Command, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", postgres_url)
    monkeypatch.setenv("HOLDFAST_QUEUES", "runs,gpu")
    refused = holdfast("worker", "--queues", "gpu,defualt")
    assert (refused.code, "There is no queue 'defualt'. Did you mean 'default'?" in refused.err) == (2, True), (
        refused.err
    )


def test_a_worker_behind_a_pooler_in_transaction_mode_does_not_start(
    holdfast: Command, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_pooler(postgres_url, "transaction") as url:
        monkeypatch.setenv("HOLDFAST_DATABASE_URL", url)
        refused = holdfast("worker")
    assert refused.code != 0
    assert "behind a pooler in transaction mode" in refused.err
    assert "session mode" in refused.err
