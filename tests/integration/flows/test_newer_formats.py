"""Runs of flows that a newer version has written are left alone by this one, and say so."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.flow_stores import FlowStore, new_flow_store
from tests.support.progress_limit import until

from holdfast import Context, Runtime, cancel_flow, flow, run_flow, start_flow
from holdfast.errors import RunNotInState
from holdfast.flows.service.flow_fork import fork_flow
from holdfast.runtime import flow_rows
from holdfast.runtime.checkpoint.base import FLOW_FORMAT, Statement
from holdfast.runtime.journal import Journal
from holdfast.runtime.stores import open_journal


@pytest.fixture(params=["path", "postgres"])
def flows(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FlowStore]:
    with new_flow_store(request.param, tmp_path, lambda: request.getfixturevalue("postgres_url")) as store:
        yield store


@flow("known words")
async def known(ctx: Context) -> str:
    return await ctx.step("say", lambda: "words")


async def set_format(journal: Journal, run_id: str, number: int) -> None:
    params = {"run_id": run_id, "number": number}
    change = Statement("UPDATE flow_runs SET format = :number WHERE run_id = :run_id", params)
    await journal.append(run_id, [], rows=[change])


async def test_a_run_of_a_newer_format_is_neither_driven_nor_forked_nor_ended(flows: FlowStore) -> None:
    await start_flow(known, run_id="newer", store=flows.target)
    async with open_journal(flows.target) as journal:
        await set_format(journal, "newer", FLOW_FORMAT + 1)
        async with Runtime(flows.target, [known], poll_s=0.05) as runtime:
            assert await (await runtime.start(known)).result() == "words"
            for act in (
                run_flow(known, run_id="newer", store=flows.target),
                fork_flow("newer", before="say", store=flows.target),
            ):
                with pytest.raises(RunNotInState, match="newer holdfast"):
                    await act
            await cancel_flow("newer", store=flows.target)
        assert [event.kind for event in await journal.read("newer")] == ["run.created", "run.cancel.requested"]

        await set_format(journal, "newer", FLOW_FORMAT)
        async with Runtime(flows.target, [known], poll_s=0.05):
            await until(lambda: is_cancelled(journal), "it is cancelled by a version that knows it")


def is_cancelled(journal: Journal) -> bool:
    row = flow_rows.read_row(journal.store, "newer")
    return row is not None and row.status == "cancelled"


async def test_whoever_goes_on_with_a_run_writes_its_own_format(flows: FlowStore) -> None:
    await start_flow(known, run_id="older", store=flows.target)
    async with open_journal(flows.target) as journal:
        await set_format(journal, "older", 0)
        assert await run_flow(known, run_id="older", store=flows.target) == "words"
        row = flow_rows.read_row(journal.store, "older")
    assert row is not None
    assert row.format == FLOW_FORMAT
