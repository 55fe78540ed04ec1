"""The first event of a drive can be refused, or come beside someone's wish, like any other."""

from typing import Any

import pytest
from tests.support.engine_world import World, hand_in, phase

from holdfast.engine import run_owner
from holdfast.enums import RunStatus
from holdfast.errors import HoldfastError, StoreUnreadable
from holdfast.runtime.events import EventKind, create_event


async def waiting(world: World) -> str:
    result = await world.run(hand_in, phase("spec", risk="high"))
    assert result.state is RunStatus.PAUSED
    return str(result.run_id)


@pytest.mark.parametrize("verb", ["resume", "abort", "pause"])
async def test_a_store_that_cannot_be_written_is_a_typed_error_and_the_run_goes_on_later(
    world: World, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await world.run_and_stop(hand_in) if verb == "pause" else await waiting(world)
    append = world.db.store.append

    def full(batch: Any, **options: Any) -> Any:
        kinds = {str(prepared.event.kind) for one in batch for prepared in one.events}
        if kinds & {"run.resumed", "run.cancelled", "run.paused"}:
            raise StoreUnreadable("The store could not be written: database or disk is full.")
        return append(batch, **options)

    monkeypatch.setattr(world.db.store, "append", full)
    with pytest.raises(HoldfastError) as error:
        await getattr(world.engine(), verb)(run_id)
    monkeypatch.undo()

    assert error.value.code == "store_unreadable"
    again = await world.engine(callback=_yes).resume(run_id)
    assert again.state is (RunStatus.CANCELLED if verb == "abort" else RunStatus.COMPLETED)


async def test_a_wish_to_end_it_that_comes_before_its_first_event_is_heard(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await waiting(world)
    other, open_files = world.open_database(), run_owner.open_files

    async def open_while_someone_aborts(scope: Any) -> bool:
        request = create_event(run_id, EventKind.RUN_CANCEL_REQUESTED, reason="too late", by="ann")
        other.store.save_event(request)
        return await open_files(scope)

    monkeypatch.setattr(run_owner, "open_files", open_while_someone_aborts)
    result = await world.engine().resume(run_id)

    assert result.state is RunStatus.CANCELLED
    [cancelled] = world.events(run_id, "run.cancelled")
    assert (cancelled.payload["reason"], cancelled.payload["by"]) == ("too late", "ann")


async def _yes(_request: Any) -> str:
    return "approve"
