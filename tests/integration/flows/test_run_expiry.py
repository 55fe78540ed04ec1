"""Runs of flows that were over long ago are deleted, each whole, and none that something still needs."""

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.flow_stores import FlowStore, new_flow_store

from holdfast import Context, RunPaused, retry_flow, run_flow, start_flow
from holdfast.cli import app
from holdfast.errors import RunNotInState
from holdfast.flows import run_expiry
from holdfast.flows.answers import delete_in_journal
from holdfast.runtime.stores import open_journal
from holdfast.testing import skip_time

ENDED = ("completed", "cancelled")


@pytest.fixture(params=["path", "postgres"])
def flows(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FlowStore]:
    with new_flow_store(request.param, tmp_path, lambda: request.getfixturevalue("postgres_url")) as store:
        yield store


async def child(ctx: Context) -> int:
    return await ctx.step("one", lambda: 1)


async def whole(ctx: Context) -> int:
    return await ctx.run_flow(child)


async def asks(ctx: Context) -> int:
    number = await ctx.run_flow(child)
    await ctx.approval("go")
    return number


async def breaks(ctx: Context) -> None:
    raise LookupError("no")


async def prune(flows: FlowStore, age: timedelta, states: tuple[str, ...] = ENDED) -> tuple[list[str], list[str]]:
    async with open_journal(flows.target) as journal:
        rows = await run_expiry.list_prunable(journal, older_than=age, states=states)
        deleted, staying = await run_expiry.prune(journal, rows)
    return deleted, list(staying)


async def test_old_runs_go_with_their_children_and_what_may_go_on_stays(
    flows: FlowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_expiry, "_ROWS_AT_ONCE", 2)
    with skip_time() as clock:
        await run_flow(whole, run_id="whole", store=flows.target)
        with pytest.raises(RunPaused):
            await run_flow(asks, run_id="asks", store=flows.target)
        with pytest.raises(LookupError):
            await run_flow(breaks, run_id="breaks", store=flows.target)
        clock.advance(timedelta(days=31).total_seconds())
        await run_flow(whole, run_id="new", store=flows.target)

        assert await prune(flows, timedelta(days=40)) == ([], [])
        deleted, staying = await prune(flows, timedelta(days=30))

        assert deleted[0] == "whole"
        assert [run_id.partition(".")[0] for run_id in deleted] == ["whole", "whole"]
        assert [run_id.partition(".")[0] for run_id in staying] == ["asks"]
        assert await prune(flows, timedelta(days=30), ("failed",)) == (["breaks"], [])
        assert await run_flow(whole, run_id="new", store=flows.target) == 1


async def test_a_failed_run_that_is_to_be_retried_is_not_deleted(flows: FlowStore) -> None:
    with pytest.raises(LookupError):
        await run_flow(breaks, run_id="r", store=flows.target)
    await retry_flow("r", store=flows.target)

    assert await prune(flows, timedelta(0), ("failed",)) == ([], [])
    async with open_journal(flows.target) as journal:
        with pytest.raises(RunNotInState, match="to be run again"):
            await delete_in_journal(journal, "r")


def test_the_command_says_what_it_deletes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(tmp_path / "shop.db")
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", "")  # --store sets it for the rest of the process
    asyncio.run(run_flow(child, run_id="r", store=store))
    asyncio.run(start_flow("later", run_id="s", store=store))

    def command(*options: str) -> str:
        arguments = ["holdfast", "flows", "prune", "--older-than", "0s", "--store", store, *options]
        monkeypatch.setattr("sys.argv", arguments)
        with pytest.raises(SystemExit) as ended:
            app.main()
        assert not ended.value.code
        return capsys.readouterr().out

    assert command("--dry-run") == "1 run would be deleted.\n"
    assert json.loads(command("--json")) == {"dry_run": False, "deleted": ["r"], "skipped": []}
    assert command() == "0 runs deleted.\n"
