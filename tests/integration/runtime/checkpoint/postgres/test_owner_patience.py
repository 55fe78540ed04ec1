"""How long what an owner has to record, and what it reads meanwhile, waits for a server that is away."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from tests.support.stores import progress

from holdfast.errors import StoreUnavailable
from holdfast.runtime.checkpoint import PostgresCheckpointer
from holdfast.runtime.checkpoint.base import Append, prepare
from holdfast.runtime.checkpoint.postgres import session as sessions
from holdfast.runtime.journal import Journal
from holdfast.runtime.step import Stopped
from holdfast.runtime.stores import read_events

OpenStore = Callable[..., PostgresCheckpointer]


def cut_off(store: PostgresCheckpointer, monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """Close the store's connections, and refuse it so many new ones; returns how many were tried."""
    real, tries = sessions.connect, [0]

    def connect(*args: Any) -> Any:
        tries[0] += 1
        if tries[0] <= times:
            raise psycopg.OperationalError("connection refused")
        return real(*args)

    monkeypatch.setattr(sessions, "connect", connect)
    for each in (store._writer, store._reader):
        each.drop()
    return tries


def test_a_result_waits_for_longer_than_other_writes(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(patience_s=0.0, owner_patience_s=3600.0)
    claim = store.claim("r")
    cut_off(store, monkeypatch, 3)

    with pytest.raises(StoreUnavailable):
        store.save_event(progress("other"))
    assert store.append([Append("r", [prepare(progress())], claim.epoch)]) == [[1]]


def test_a_result_is_given_up_when_its_time_is_over(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(patience_s=3600.0, owner_patience_s=0.1)
    claim = store.claim("r")
    cut_off(store, monkeypatch, 10**6)

    with pytest.raises(StoreUnavailable):
        store.append([Append("r", [prepare(progress())], claim.epoch)])


async def test_an_owner_that_hears_nothing_of_its_leases_waits_as_long(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(owner_patience_s=0.1)
    journal = Journal(store)
    claim = await journal.claim("r")
    monkeypatch.setattr(type(store.leases), "is_holding", False)

    with pytest.raises(StoreUnavailable):
        await journal.wait_until_held(claim)

    await journal.close()


async def test_a_read_in_a_run_waits_as_long_as_a_result_and_stops_the_drive_then(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(patience_s=0.0, owner_patience_s=3600.0)
    store.save_event(progress())
    journal = Journal(store)
    tries = cut_off(store, monkeypatch, 2)
    assert [event.seq for event in await read_events(journal, "r")] == [1]
    assert tries == [3]

    journal.owner_patience_s = 0.1
    cut_off(store, monkeypatch, 10**6)
    with pytest.raises(Stopped) as stopped:
        await read_events(journal, "r")

    assert isinstance(stopped.value.error, StoreUnavailable)
    monkeypatch.undo()
    await journal.close()
