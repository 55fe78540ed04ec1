"""Making a SQLite file smaller: while others use it, and never at their cost."""

import shutil
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support.stores import progress

from holdfast.persistence.compaction import compact
from holdfast.runtime.checkpoint import SQLiteCheckpointer


@pytest.fixture
def store(tmp_path: Path) -> SQLiteCheckpointer:
    """A store most of which is free space."""
    made = SQLiteCheckpointer(tmp_path / "store.db")
    for run_id in ("kept", "deleted"):
        for number in range(100):
            made.save_event(progress(run_id, n=number, text="x" * 10_000))
    made.delete_run("deleted")
    return made


def test_the_file_gets_smaller_and_holds_the_same(store: SQLiteCheckpointer) -> None:
    events = store.list_events("kept")

    done = compact(Path(store.path))

    assert done is not None
    assert done.reason == ""
    assert done.after_bytes < 0.7 * done.before_bytes
    assert store.list_events("kept") == events
    assert store.save_event(progress("kept")).seq == 101
    assert compact(Path(store.path)) is None


def test_somebody_who_writes_is_not_disturbed(store: SQLiteCheckpointer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.persistence.compaction._LOCK_WAIT_S", 0.05)
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    done = compact(Path(store.path))
    other.execute("ROLLBACK")
    other.close()

    assert done is not None
    assert "writing" in done.reason


def test_what_takes_too_long_is_given_up_and_changes_nothing(
    store: SQLiteCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.persistence.compaction._LOCK_WAIT_S", 0.0)
    monkeypatch.setattr("holdfast.persistence.compaction._STEPS_BETWEEN_LOOKS", 1)

    done = compact(Path(store.path), limit_s=0)

    assert done is not None
    assert "longer than 0 s" in done.reason
    assert len(store.list_events("kept")) == 100


def test_without_room_for_a_copy_it_is_not_tried(store: SQLiteCheckpointer, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage(NamedTuple):
        free: int

    def no_room(_folder: Any) -> Usage:
        return Usage(1000)

    monkeypatch.setattr(shutil, "disk_usage", no_room)

    done = compact(Path(store.path))

    assert done is not None
    assert "too little room" in done.reason
    assert done.after_bytes == done.before_bytes
