"""What only the SQLite store does: an old file is upgraded, positions are given once, heads are remembered."""

import hashlib
import json
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.stores import progress

from holdfast.errors import LeaseLost
from holdfast.runtime import flow_rows
from holdfast.runtime.checkpoint import SQLiteCheckpointer
from holdfast.runtime.checkpoint.base import Append, prepare
from holdfast.runtime.checkpoint.hash_chain import Head, extend, genesis
from holdfast.runtime.checkpoint.sqlite.schema import UPGRADES, VERSION, read_version
from holdfast.runtime.flow_filter import FlowFilter
from holdfast.runtime.state import RunState


def make_first_version(path: Path, runs: Sequence[tuple[str, int]]) -> None:
    """A file as the first version wrote it: runs in the order of their last event, each with its number of events."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    for statement in UPGRADES[0]:
        connection.execute(statement)
    connection.execute("PRAGMA user_version = 1")
    for touched, (run_id, count) in enumerate(runs):
        head = Head(0, genesis(run_id), "running", 7)
        rows = extend(head, [prepare(progress(run_id, n=number)) for number in range(count)])
        connection.executemany("INSERT INTO events VALUES (?, ?, ?, CAST(? AS TEXT), ?)", rows)
        connection.execute(
            "INSERT INTO journal_runs VALUES (?, 7, ?, ?, 'running', NULL, ?)", (run_id, head.seq, head.hash, touched)
        )
    connection.close()


def test_events_order_and_numbers_survive(tmp_path: Path) -> None:
    make_first_version(tmp_path / "store.db", [("old", 3), ("b", 1), ("a", 200)])

    store = SQLiteCheckpointer(tmp_path / "store.db")

    assert store.list_runs() == ["a", "b", "old"]
    assert [event.payload["n"] for event in store.list_events("a")] == list(range(200))
    assert store.save_event(progress("old")).seq == 4
    assert store.list_runs() == ["old", "a", "b"]
    assert store.read_heads(["old", "a"]) == {"old": 4, "a": 200}


def test_an_owner_from_before_is_refused_after_a_take_over(tmp_path: Path) -> None:
    make_first_version(tmp_path / "store.db", [("r", 2)])
    store = SQLiteCheckpointer(tmp_path / "store.db")

    claim = store.claim("r")
    zombie, owner = store.append(
        [Append("r", [prepare(progress())], 7), Append("r", [prepare(progress())], claim.epoch)]
    )

    assert isinstance(zombie, LeaseLost)
    assert owner == [3]


def test_a_snapshot_from_before_is_still_the_latest(tmp_path: Path) -> None:
    make_first_version(tmp_path / "store.db", [("r", 2), ("s", 1)])
    body = RunState(run_id="r", purpose="from before").to_json()
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.execute(
            "INSERT INTO snapshots VALUES ('r', 2, ?, ?)", (body.decode(), hashlib.sha256(body).digest())
        )

    store = SQLiteCheckpointer(tmp_path / "store.db")

    loaded = store.load_latest("r")
    assert loaded is not None
    assert loaded.purpose == "from before"
    assert read_version(connection) == VERSION
    store.save_snapshot("r", RunState(run_id="r"))
    assert store.list_runs() == ["r", "s"]


@pytest.mark.parametrize("deleted", ["first", "last"])
def test_a_position_is_given_once(tmp_path: Path, deleted: str) -> None:
    store = SQLiteCheckpointer(tmp_path / "store.db")
    store.save_event(progress("first"))
    store.save_event(progress("last"))

    store.delete_run(deleted)
    store.delete_run(deleted)
    store.save_event(progress("next"))

    connection = sqlite3.connect(tmp_path / "store.db")
    ((position,),) = connection.execute("SELECT position FROM events WHERE run_id = 'next'").fetchall()
    assert position > 2
    assert store.list_runs()[0] == "next"
    assert deleted not in store.list_runs()


def test_an_append_of_another_thread_beside_a_claim_does_not_spoil_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteCheckpointer(tmp_path / "store.db")
    store.save_event(progress())
    outsider = threading.Thread(target=lambda: store.save_event(progress(n="outside")))
    write = store._write

    def write_and_let_in(*arguments: Any) -> Any:
        result = write(*arguments)
        outsider.start()
        outsider.join(0.3)  # in the moment between the commit and what is remembered of it
        return result

    monkeypatch.setattr(store, "_write", write_and_let_in)
    claim = store.claim("r")
    outsider.join()
    (owner,) = store.append([Append("r", [prepare(progress(n="owner"))], claim.epoch)])

    assert owner == [3]
    assert [event.payload.get("n") for event in store.list_events("r")] == [None, "outside", "owner"]


def test_flows_of_an_earlier_version_are_in_the_index_after_opening(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    connection = sqlite3.connect(path, isolation_level=None)
    for statements in UPGRADES[:2]:
        for statement in statements:
            connection.execute(statement)
    connection.execute("PRAGMA user_version = 2")
    created = {"kind": "run.created", "ts": 12.5, "span_id": "s", "payload": {"flow": "order", "args": []}}
    for run_id, body in (("flow", json.dumps(created)), ("damaged", "{"), ("workflow", '{"payload": {}}')):
        connection.execute(
            "INSERT INTO events (run_id, seq, type, body, hash) VALUES (?, 1, 'run.created', ?, x'')", (run_id, body)
        )
        connection.execute("INSERT INTO journal_runs (run_id, status) VALUES (?, 'running')", (run_id,))
    connection.close()

    store = SQLiteCheckpointer(path)

    (row,) = flow_rows.read_page(store, FlowFilter(), limit=10)
    assert (row.run_id, row.flow, row.status, row.created_at, row.is_driven) == ("flow", "order", "running", 12.5, True)
    store.delete_run("flow")
    assert flow_rows.read_page(store, FlowFilter(), limit=10) == []
