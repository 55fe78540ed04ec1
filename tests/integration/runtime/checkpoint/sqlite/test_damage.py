"""Bad luck with SQLite files: changed, lost and moved rows, and flipped bits anywhere in the file."""

import os
import random
import sqlite3
from pathlib import Path

import pytest
from tests.support.stores import progress

from holdfast.errors import HoldfastError, JournalCorrupt, StoreUnreadable
from holdfast.runtime.checkpoint import SQLiteCheckpointer
from holdfast.runtime.events import Event

SEED = int(os.environ.get("HOLDFAST_SEED", "0") or 0)


def fill(store: SQLiteCheckpointer, count: int = 3, run_id: str = "r") -> list[Event]:
    return [store.save_event(progress(run_id, n=n, text="ä")) for n in range(count)]


ROW_DAMAGE = {
    "body": "UPDATE events SET body = replace(body, '\"n\":1', '\"n\":7') WHERE seq = 2",
    "body cut": "UPDATE events SET body = substr(body, 1, 20) WHERE seq = 2",
    "body gone": "UPDATE events SET body = '' WHERE seq = 2",
    "type": "UPDATE events SET type = 'run.completed' WHERE seq = 2",
    "hash": "UPDATE events SET hash = zeroblob(32) WHERE seq = 2",
    "hash cut": "UPDATE events SET hash = substr(hash, 1, 31) WHERE seq = 2",
    "seq": "UPDATE events SET seq = 9 WHERE seq = 2",
    "middle row gone": "DELETE FROM events WHERE seq = 2",
    "last row gone": "DELETE FROM events WHERE seq = 4",
    "all rows gone": "DELETE FROM events",
    "last row changed": "UPDATE events SET body = replace(body, '\"n\":3', '\"n\":7') WHERE seq = 4",
    "last hash removed and row changed": "UPDATE events SET body = replace(body, '\"n\":3', '\"n\":7'), hash = x'' "
    "WHERE seq = 4",
    "middle hash removed and row changed": "UPDATE events SET body = replace(body, '\"n\":1', '\"n\":7'), hash = x'' "
    "WHERE seq = 2",
    "rows swapped": "UPDATE events SET seq = 5 - seq + 100 WHERE seq IN (2, 3);"
    "UPDATE events SET seq = seq - 100 WHERE seq > 100",
    "row of another run": "DELETE FROM events WHERE run_id = 'r' AND seq = 2;"
    "UPDATE events SET run_id = 'r' WHERE run_id = 'other' AND seq = 2",
}


@pytest.mark.parametrize("damage", ROW_DAMAGE)
def test_a_damaged_row_is_an_error_that_names_run_and_position(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "holdfast.db"
    store = SQLiteCheckpointer(path)
    fill(store, 4)
    fill(store, 4, "other")
    store.close()
    connection = sqlite3.connect(path)
    connection.executescript(ROW_DAMAGE[damage])
    connection.close()

    with pytest.raises(JournalCorrupt) as caught:
        SQLiteCheckpointer(path).list_events("r")

    assert caught.value.facts["run_id"] == "r"
    assert "'r'" in caught.value.message
    assert f"event {caught.value.facts['seq']}" in caught.value.message


def test_a_damaged_big_value_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    for damage in ("UPDATE blobs SET body = x'22'", "DELETE FROM blobs"):
        store = SQLiteCheckpointer(path)
        store.save_event(progress(text="x" * 100_000))
        store.close()
        connection = sqlite3.connect(path)
        connection.execute(damage)
        connection.commit()
        connection.close()

        with pytest.raises(JournalCorrupt, match="'r'"):
            SQLiteCheckpointer(path).list_events("r")
        SQLiteCheckpointer(path).delete_run("r")


def test_a_schema_whose_text_is_damaged_is_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    store = SQLiteCheckpointer(path)
    fill(store, 3)
    store.close()
    whole = path.read_bytes()
    place = whole.index(b"CREATE TABLE")
    path.write_bytes(whole[:place] + b"CRE\xccTE T\xccBLE" + whole[place + 12 :])

    with pytest.raises(StoreUnreadable):
        SQLiteCheckpointer(path).list_events("r")


@pytest.mark.parametrize("head", ["text", b"bytes"])
def test_a_head_that_is_not_a_number_is_an_error(tmp_path: Path, head: object) -> None:
    path = tmp_path / "holdfast.db"
    store = SQLiteCheckpointer(path)
    fill(store, 3)
    store.close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE journal_runs SET head = ?", (head,))
    connection.commit()
    connection.close()

    with pytest.raises(JournalCorrupt, match="not a number"):
        SQLiteCheckpointer(path).list_events("r")
    with pytest.raises(JournalCorrupt, match="not a number"):
        SQLiteCheckpointer(path).save_event(progress("r", n=3))


def test_a_damaged_page_never_gives_a_wrong_event(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    store = SQLiteCheckpointer(path)
    saved = fill(store, 50)
    store.close()
    whole = path.read_bytes()
    rng = random.Random(SEED)

    for _ in range(60):
        damaged = bytearray(whole)
        damaged[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            found = SQLiteCheckpointer(path).list_events("r")
        except HoldfastError:
            continue
        finally:
            for suffix in ("-wal", "-shm"):
                Path(f"{path}{suffix}").unlink(missing_ok=True)
        assert found == saved
