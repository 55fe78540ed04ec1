"""Deleting a run with rows in the same transaction: all of it or nothing, by its owner alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.postgres_server import fresh_schema
from tests.support.stores import progress

from holdfast.errors import LeaseLost, RowRefused
from holdfast.runtime.checkpoint.base import JournalStore, Statement
from holdfast.runtime.stores import open_store

BIG = "a big value " * 10_000


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JournalStore]:
    if request.param == "sqlite":
        opened = open_store(tmp_path / "store.db")
        yield opened
        opened.close()
        return
    with fresh_schema(request.getfixturevalue("postgres_url")) as url:
        opened = open_store(url)
        yield opened
        opened.close()


def changed_row(run_id: str, expect: int) -> Statement:
    return Statement("UPDATE journal_runs SET status = 'seen' WHERE run_id = :id", {"id": run_id}, expect=expect)


def test_rows_and_journal_go_together_or_not_at_all(store: JournalStore) -> None:
    for run_id in ("deleted", "other"):
        store.save_event(progress(run_id, text=BIG))
    claim = store.claim("deleted")

    with pytest.raises(RowRefused):
        store.delete_run("deleted", claim=claim, rows=[changed_row("other", 1), changed_row("nobody", 1)])
    assert len(store.list_events("deleted")) == 1
    store.delete_run("deleted", claim=claim, rows=[changed_row("other", 1)])
    store.release(claim)

    assert store.list_events("deleted") == []
    assert store.list_runs() == ["other"]
    assert store.list_events("other")[0].payload["text"] == BIG  # the value that both had stays
    assert store.save_event(progress("deleted", text=BIG)).seq == 1


def test_whoever_lost_the_run_deletes_nothing(store: JournalStore) -> None:
    store.save_event(progress("r"))
    lost = store.claim("r")
    owner = store.claim("r", force=True)

    with pytest.raises(LeaseLost):
        store.delete_run("r", claim=lost)
    assert len(store.list_events("r")) == 1
    store.delete_run("r", claim=owner)

    assert store.list_events("r") == []
