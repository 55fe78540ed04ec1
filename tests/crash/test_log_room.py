"""The write-ahead log is lengthened ahead of its end: by processes that are killed at it, and by two at once."""

import os
import random
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast.runtime.checkpoint import SQLiteCheckpointer
from holdfast.runtime.checkpoint.sqlite.wal import _FULL_BYTES, LogRoom

SEED = int(os.environ.get("HOLDFAST_SEED", "1"))
KILLS = 100 if os.environ.get("HOLDFAST_TORTURE") == "1" else 8
# Says the number of each event once it is stored, and how long the log is then.
WRITER = """
import os, sys
from holdfast.runtime.checkpoint import SQLiteCheckpointer
from holdfast.runtime.events import create_event

path, run_id, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = SQLiteCheckpointer(path)
for number in range(count):
    stored = store.save_event(create_event(run_id, "step.completed", text="x" * 1000))
    print(stored.seq, os.path.getsize(path + "-wal"), flush=True)
"""


def start(path: Path, run_id: str, count: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WRITER, str(path), run_id, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def assert_whole(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


def test_a_writer_killed_while_or_after_it_makes_room_loses_nothing(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    path = tmp_path / "a.db"
    sizes: list[int] = []
    for attempt in range(KILLS):
        run_id = f"run{attempt}"
        with start(path, run_id, 400) as process:
            assert process.stdout is not None
            acknowledged = 0
            for line in process.stdout:
                acknowledged, size = map(int, line.split())
                sizes.append(size)
                # Room is made at about the eighth event; the kill comes at any moment around it.
                if acknowledged >= chance.choice((5, 6, 7, 8, 9, 30)):
                    threading.Event().wait(chance.uniform(0, 0.01))
                    process.kill()
                    break
        store = SQLiteCheckpointer(path)
        events = store.list_events(run_id)
        store.close()

        assert [event.seq for event in events] == list(range(1, len(events) + 1)), f"seed {SEED}"
        assert len(events) >= acknowledged, f"seed {SEED}"
        assert_whole(path)
    assert max(sizes) >= _FULL_BYTES


def test_two_processes_that_write_and_make_room_do_not_disturb_each_other(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    SQLiteCheckpointer(path).close()
    processes = [start(path, run_id, 150) for run_id in ("one", "two")]
    for process in processes:
        process.communicate()
        assert process.returncode == 0

    store = SQLiteCheckpointer(path)
    assert [len(store.list_events(run_id)) for run_id in ("one", "two")] == [150, 150]
    store.close()
    assert_whole(path)


def test_no_room_is_made_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "a.db-wal"
    log.write_bytes(b"x" * 60_000)
    room = LogRoom(str(log))
    room.make()
    log.write_bytes(b"x" * 70_000)
    monkeypatch.setattr("holdfast.runtime.checkpoint.sqlite.wal._MIN_FREE_BYTES", 1 << 62)

    room.make()

    assert room.is_enough
    assert log.stat().st_size == 70_000


def test_what_the_log_holds_stays(tmp_path: Path) -> None:
    log = tmp_path / "a.db-wal"
    room = LogRoom(str(log))
    for size in (60_000, 70_000):
        log.write_bytes(b"x" * size)
        room.make()

    assert log.read_bytes() == b"x" * 70_000 + bytes(_FULL_BYTES - 70_000)
