"""Flows begun in one statement, and runs given up with their last append."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from tests.support.stores import progress

from holdfast import Context, Runtime, flow, get_flow
from holdfast.enums import RunStatus
from holdfast.errors import RunBusy
from holdfast.flows.service.flow_drive import FlowDrive
from holdfast.flows.service.flow_look import FlowLooks
from holdfast.flows.service.flow_registry import FlowDefinition
from holdfast.flows.service.start import start_flow
from holdfast.runtime import flow_rows
from holdfast.runtime.checkpoint import PostgresCheckpointer
from holdfast.runtime.checkpoint.base import Append, Opening, prepare
from holdfast.runtime.events import EventKind, create_event
from holdfast.runtime.journal import Journal
from holdfast.runtime.stores import open_journal

Sql = Callable[..., list[tuple[object, ...]]]
OpenStore = Callable[..., PostgresCheckpointer]
OWNERS = "SELECT run_id FROM journal_runs WHERE owner IS NOT NULL ORDER BY run_id"


@flow("begin_double")
async def double(ctx: Context, number: int) -> int:
    return 2 * await ctx.step("step", lambda: number)


DOUBLE = FlowDefinition("begin_double", double)


def to_opening(look: flow_rows.FlowLook) -> Opening:
    assert look.created is not None
    run_id = look.row.run_id
    first = prepare(create_event(run_id, EventKind.RUN_STARTED))
    return Opening(run_id, look.epoch, look.created.seq, look.head_hash, first)


def look_at(store: PostgresCheckpointer, *run_ids: str) -> dict[str, flow_rows.FlowLook]:
    return flow_rows.read_looks(store, run_ids)


async def start(store: PostgresCheckpointer, *run_ids: str) -> None:
    for number, run_id in enumerate(run_ids):
        await start_flow("begin_double", number, run_id=run_id, store=store)


async def test_only_what_is_as_it_was_read_is_begun(store: PostgresCheckpointer, sql: Sql) -> None:
    run_ids = ["free", "written", "claimed", "deleted", "taken", "gone"]
    await start(store, *run_ids)
    looks = look_at(store, *run_ids)
    store.save_event(create_event("written", EventKind.RUN_CANCEL_REQUESTED))
    store.claim("claimed")
    store.delete_run("deleted")
    claim = store.claim("taken")
    store.release(claim)
    sql("DELETE FROM flow_runs WHERE run_id = 'gone'")

    results = dict(zip(run_ids, store.begin_many([to_opening(looks[each]) for each in run_ids]), strict=True))

    begun = results.pop("free")
    assert begun is not None
    assert set(results.values()) == {None}
    assert sql(OWNERS) == [("claimed",), ("free",)]
    assert [event.kind for event in store.list_events("free")] == ["run.created", "run.started"]
    assert (begun.head, begun.is_takeover) == (2, False)
    row = look_at(store, "free")["free"].row
    assert (row.status, row.wake_at, row.is_driven) == ("running", None, True)
    assert [event.kind for event in store.list_events("taken")] == ["run.created"]
    assert store.list_events("deleted") == []
    # Its next append goes on from there.
    (numbers,) = store.append([Append("free", [prepare(progress("free"))], begun.epoch)])
    assert numbers == [3]


async def test_one_of_two_who_begin_a_flow_has_it(open_store: OpenStore, sql: Sql) -> None:
    first, second = open_store(), open_store()
    await start(first, "contested")
    looks = [look_at(store, "contested")["contested"] for store in (first, second)]
    claims = [store.begin_many([to_opening(look)])[0] for store, look in zip((first, second), looks, strict=True)]
    assert claims[1] is None
    assert claims[0] is not None
    with pytest.raises(RunBusy):
        second.claim("contested")
    assert look_at(second, "contested")["contested"].created is None


async def test_the_last_append_gives_the_run_up(open_store: OpenStore, sql: Sql) -> None:
    store, other = open_store(), open_store()
    claims = {run_id: store.claim(run_id) for run_id in ("ended", "refused", "going")}
    wrong = flow_rows.parked("refused", wake_at=None, waits_for="x", head=99)

    def last(run_id: str, *, is_last: bool = True, rows: tuple[flow_rows.Statement, ...] = ()) -> Append:
        events = [prepare(create_event(run_id, EventKind.RUN_COMPLETED))]
        return Append(run_id, events, claims[run_id].epoch, rows, is_last)

    batch = [last("ended"), last("refused", rows=(wrong,)), last("going", is_last=False)]
    assert [isinstance(result, list) for result in store.append(batch)] == [True, False, True]
    assert sql(OWNERS) == [("going",), ("refused",)]
    assert [store.forget(claims[run_id]) for run_id in ("ended", "ended", "refused", "going")] == [
        True,
        False,
        False,
        False,
    ]
    assert other.claim("ended").is_takeover is False


@pytest.mark.parametrize("left", ["nothing", "an event that is stored already"])
async def test_a_last_append_that_finds_nothing_to_write_gives_the_run_up_too(
    store: PostgresCheckpointer, sql: Sql, left: str
) -> None:
    claim = store.claim("ended")
    stored = [msgspec.structs.replace(prepare(create_event("ended", EventKind.RUN_COMPLETED)), seq=1)]
    assert store.append([Append("ended", stored, claim.epoch)]) == [[1]]

    events = [] if left == "nothing" else stored
    assert store.append([Append("ended", events, claim.epoch, is_last=True)]) == [[event.seq for event in events]]

    assert sql(OWNERS) == []
    assert store.forget(claim)
    assert [event.seq for event in store.list_events("ended")] == [1]
    assert store.claim("ended").is_takeover is False


def note_sizes(store: PostgresCheckpointer, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """Note how many runs are begun, claimed and released at once from now on."""
    sizes: dict[str, list[int]] = {"begin_many": [], "claim_many": [], "release_many": []}
    for name, heard in sizes.items():
        real = getattr(store, name)
        monkeypatch.setattr(
            store, name, lambda what, real=real, heard=heard, **more: (heard.append(len(what)), real(what, **more))[1]
        )
    return sizes


async def test_flows_are_looked_at_begun_and_ended_together(
    store: PostgresCheckpointer, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_ids = [f"flow{number}" for number in range(12)]
    await start(store, *run_ids)
    sizes = note_sizes(store, monkeypatch)
    async with open_journal(store) as journal:
        looks = FlowLooks(journal)

        async def drive(run_id: str) -> None:
            look = await looks.look(run_id)
            assert look is not None
            await FlowDrive(journal, DOUBLE, run_id, park_after_s=5.0, begin=lambda: looks.begin(look)).run()

        await asyncio.gather(*map(drive, run_ids))
        assert await _results(journal, run_ids) == [2 * number for number in range(12)]
    assert sizes == {"begin_many": [12], "claim_many": [], "release_many": []}
    assert sql("SELECT DISTINCT status FROM flow_runs") == [(RunStatus.COMPLETED.value,)]
    assert sql(OWNERS) == []


async def test_a_runtime_in_a_program_begins_and_ends_them_together_too(
    store: PostgresCheckpointer, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_ids = [f"flow{number}" for number in range(12)]
    await start(store, *run_ids)
    sizes = note_sizes(store, monkeypatch)
    async with Runtime(store, flows=[double]):
        found = await asyncio.gather(*(get_flow(run_id, store=store).result() for run_id in run_ids))
    assert found == [2 * number for number in range(12)]
    assert sizes == {"begin_many": [12], "claim_many": [], "release_many": []}
    assert sql(OWNERS) == []


async def _results(journal: Journal, run_ids: list[str]) -> list[object]:
    return [(await journal.read(run_id))[-1].payload["result"] for run_id in run_ids]


async def test_what_nobody_waits_for_any_more_is_given_up_at_once(store: PostgresCheckpointer, sql: Sql) -> None:
    await start(store, "left")
    async with open_journal(store) as journal:
        looks = FlowLooks(journal)
        look = await looks.look("left")
        assert look is not None
        beginning = asyncio.create_task(looks.begin(look))
        real = store.begin_many

        def begin(openings: list[Opening]) -> object:
            journal._loop.call_soon_threadsafe(beginning.cancel)
            return real(openings)

        store.begin_many = begin  # type: ignore[method-assign,assignment]
        await asyncio.wait([beginning])
        await looks.settle()
        row = look_at(store, "left")["left"].row
    assert beginning.cancelled()
    assert (row.status, row.is_due) == ("running", True)
    assert sql(OWNERS) == []
