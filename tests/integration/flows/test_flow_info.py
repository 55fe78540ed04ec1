"""Runs as a program asks for them: what one shows and waits for, which there are, and what a failed one raised."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.flow_stores import KINDS, FlowStore, new_flow_store

from holdfast import Context, RunPaused, Runtime, decide, flow, get_flow, list_flows, run_flow, start_flow
from holdfast.enums import RunStatus
from holdfast.errors import RunNotFound, StoreUnsupported
from holdfast.runtime.checkpoint import InMemoryCheckpointer
from holdfast.testing import memory_store


@pytest.fixture(params=KINDS)
def flows(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FlowStore]:
    with new_flow_store(request.param, tmp_path, lambda: request.getfixturevalue("postgres_url")) as store:
        yield store


class Declined(Exception):
    """As people write them: facts in attributes that its text does not have."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"declined: {reason}")
        self.code = code
        self.reason = reason


@flow("pays")
async def pays(ctx: Context, cents: int) -> str:
    ctx.set_status("looks at it")
    ctx.emit({"cents": cents})
    ctx.set_status("asks")
    await ctx.approval("boss", show=cents)
    ctx.emit("approved")
    return await ctx.step("pay", lambda: "paid")


@flow("declines")
async def declines(ctx: Context) -> None:
    raise Declined(402, "no money") from LookupError("account")


async def test_a_run_tells_what_it_shows_and_waits_for_now(flows: FlowStore) -> None:
    handle = get_flow("r", store=flows.named)
    with pytest.raises(RunNotFound):
        await handle.describe()
    with pytest.raises(RunPaused):
        await run_flow(pays, 5, run_id="r", store=flows.named, tags={"who": "ann"})

    details = await handle.describe()

    assert (details.run_id, details.flow, details.status, details.tags) == (
        "r",
        "pays",
        RunStatus.PAUSED,
        {"who": "ann"},
    )
    assert (details.status_text, details.last_value, details.approvals) == ("asks", {"cents": 5}, ("boss",))
    assert details.created_at <= details.updated_at
    await decide("r", "boss", "approve", store=flows.named)
    await run_flow(pays, 5, run_id="r", store=flows.named)
    details = await handle.describe()
    assert (details.status, details.last_value, details.approvals, details.error) == (
        RunStatus.COMPLETED,
        "approved",
        (),
        None,
    )


async def test_a_failed_run_raises_in_any_program_what_it_raised_with_all_facts(flows: FlowStore) -> None:
    with pytest.raises(Declined):
        await run_flow(declines, run_id="r", store=flows.named)

    handle = get_flow("r", store=flows.named)
    with pytest.raises(Declined, match="declined: no money") as raised:
        await handle.result()

    assert (raised.value.code, raised.value.reason) == (402, "no money")
    assert isinstance(raised.value.__cause__, LookupError)
    assert (await handle.describe()).error == f"{__name__}.Declined: declined: no money"


async def test_a_handle_sends_events_and_answers(flows: FlowStore) -> None:
    async def asks(ctx: Context) -> str:
        paid = await ctx.wait_for("paid")
        return f"{paid} {await ctx.approval('go')}"

    handle = await start_flow(asks, run_id="r", store=flows.named)
    await handle.send_event("paid", 5, dedup_id="p")
    await handle.send_event("paid", 6, dedup_id="p")
    with pytest.raises(RunPaused):
        await run_flow(asks, run_id="r", store=flows.named)
    await handle.decide("go", "approve", by="ann")

    assert await run_flow(asks, run_id="r", store=flows.named) == "5 approve"


async def test_a_runtime_logs_what_a_run_that_nobody_asks_for_has_raised(caplog: pytest.LogCaptureFixture) -> None:
    store = memory_store()
    async with Runtime(store, flows=[declines]) as runtime:
        handle = await runtime.start(declines, run_id="r")
        with pytest.raises(Declined):
            await handle.result()

    (record,) = [record for record in caplog.records if record.name == "holdfast.flows"]
    assert record.getMessage() == "Run r of flow declines failed"
    assert "no money" in caplog.text


async def test_a_run_without_notes_shows_none() -> None:
    store = memory_store()
    details = await (await start_flow("pays", 1, run_id="r", store=store)).describe()

    assert (details.status, details.status_text, details.last_value, details.parent_run_id) == (
        RunStatus.PENDING,
        "",
        None,
        None,
    )


async def test_runs_are_found_by_flow_status_and_tags_the_newest_first() -> None:
    store = memory_store()
    for number in range(3):
        await start_flow("pays", number, run_id=f"p{number}", store=store, tags={"n": str(number), "who": "ann"})
    await start_flow("declines", run_id="d", store=store)
    async with Runtime(store, flows=[declines]):
        with pytest.raises(Declined):
            await get_flow("d", store=store).result()

    assert [run.run_id for run in await list_flows(store=store, flow="pays")] == ["p2", "p1", "p0"]
    assert [run.run_id for run in await list_flows(store=store, flow="pays", limit=1)] == ["p2"]
    assert [(run.run_id, run.flow) for run in await list_flows(store=store, status="failed")] == [("d", "declines")]
    (found,) = await list_flows(store=store, status=RunStatus.PENDING, tags={"who": "ann", "n": "1"})
    assert (found.run_id, found.tags, found.parent_run_id) == ("p1", {"n": "1", "who": "ann"}, None)
    assert await list_flows(store=store, tags={"who": "bob"}) == []
    with pytest.raises(ValueError, match="done"):
        await list_flows(store=store, status="done")
    with pytest.raises(StoreUnsupported):
        await list_flows(store=InMemoryCheckpointer())
