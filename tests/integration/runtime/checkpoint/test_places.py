"""Bad luck with the place of a store: not a store, read-only, full, of another version, or just being made."""

import json
import os
import random
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.stores import Place, finish, progress, seqs

from holdfast.errors import HoldfastError, StoreNewer, StoreUnreadable
from holdfast.runtime.checkpoint import JSONLCheckpointer, SQLiteCheckpointer
from holdfast.runtime.events import Event
from holdfast.runtime.state import RunState

SEED = int(os.environ.get("HOLDFAST_SEED", "0") or 0)


def fill(store: JSONLCheckpointer, count: int = 3, run_id: str = "r") -> list[Event]:
    return [store.save_event(progress(run_id, n=n, text="ä")) for n in range(count)]


# -- places that are no store -----------------------------------------------------------------------------------------


def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("These are my notes.\n" * 500)

    with pytest.raises(StoreUnreadable) as caught:
        SQLiteCheckpointer(path)

    assert caught.value.hint
    assert path.read_text().startswith("These are my notes.")


def test_a_folder_is_not_a_database(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreadable):
        SQLiteCheckpointer(tmp_path)


def test_a_file_is_not_a_folder_of_journals(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()

    with pytest.raises(StoreUnreadable):
        JSONLCheckpointer(path)
    with pytest.raises(StoreUnreadable):
        JSONLCheckpointer(path / "below")


def test_a_run_that_is_a_file_or_whose_journal_is_a_folder_is_refused(tmp_path: Path) -> None:
    store = JSONLCheckpointer(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "folder" / "events.jsonl").mkdir(parents=True)

    for run_id in ("file", "folder"):
        for use in (lambda run_id: store.save_event(progress(run_id)), store.list_events):
            with pytest.raises(StoreUnreadable):
                use(run_id)


@pytest.mark.parametrize("open_it", [lambda path: SQLiteCheckpointer(f"{path}.db"), JSONLCheckpointer])
def test_a_place_where_nothing_can_be_made_is_refused(open_it: Callable[[str], SQLiteCheckpointer]) -> None:
    with pytest.raises(StoreUnreadable):
        open_it("/proc/holdfast-cannot-be-here").save_event(progress())


IN_A_READ_ONLY_PLACE = """
import ctypes, os
MS_RDONLY, MS_REMOUNT, MS_BIND = 1, 32, 4096
libc = ctypes.CDLL(None, use_errno=True)
def become_read_only(path):
    try:
        os.chmod(path, 0o555)
        for root, folders, files in os.walk(path):
            [os.chmod(os.path.join(root, name), 0o444) for name in files]
            [os.chmod(os.path.join(root, name), 0o555) for name in folders]
        if os.geteuid() != 0:
            return True
        if libc.unshare(0x00020000) or libc.mount(None, b"/", None, 0x44000, None):  # a private mount namespace
            return False
        target = os.fsencode(path)
        return not (
            libc.mount(target, target, None, MS_BIND, None)
            or libc.mount(None, target, None, MS_BIND | MS_REMOUNT | MS_RDONLY, None)
        )
    except OSError:
        return False
"""


def test_a_read_only_folder_can_be_read_and_says_what_is_wrong_on_writing(tmp_path: Path) -> None:
    store = JSONLCheckpointer(tmp_path)
    fill(store)
    store.save_snapshot("r", RunState("r"))
    with (tmp_path / "r" / "events.jsonl").open("ab") as appending:
        appending.write(b"torn")
    code = (
        IN_A_READ_ONLY_PLACE
        + """
import logging
from holdfast.errors import StoreUnreadable
from holdfast.runtime.checkpoint import JSONLCheckpointer
warnings = []
logging.getLogger("holdfast.runtime").addFilter(lambda record: warnings.append(record.getMessage()))
if not become_read_only(args[0]):
    print("cannot make a read-only place"); sys.exit()
store = JSONLCheckpointer(args[0])
assert [event.seq for event in store.list_events("r")] == [1, 2, 3]
assert [event.seq for event in store.list_events("r", 2)] == [3]
assert store.load_latest("r") is not None and store.list_runs() == ["r"]
for write in (lambda: store.save_event(progress()), lambda: store.save_event(progress("new")),
              lambda: store.save_snapshot("r", store.load_latest("r")), lambda: store.delete_run("r")):
    try:
        write()
    except StoreUnreadable as error:
        assert error.hint
    else:
        raise AssertionError(write)
assert warnings == ["journal ended in a torn line"], warnings
assert [event.seq for event in store.list_events("r")] == [1, 2, 3]
"""
    )
    out = finish(Place("memory", "").start_process(code, tmp_path))
    os.system(f"chmod -R u+rwX {tmp_path}")
    if out:
        pytest.skip(out.strip())
    assert seqs(JSONLCheckpointer(tmp_path)) == [1, 2, 3]


# -- a full disk ------------------------------------------------------------------------------------------------------

UNTIL_FULL = """
import json, resource
from holdfast.errors import StoreFull
from holdfast.runtime.state import RunState
no_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
acknowledged, refused = [], 0
for turn, limit in enumerate((30_000, 45_000, 70_001, no_limit[0])):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, no_limit[1]))
    for n in range(40):
        try:
            acknowledged.append(store.save_event(progress(n=[turn, n], text="x" * 700)).to_dict())
        except StoreFull as error:
            refused += 1
            assert error.code == "store_full" and error.hint
            assert [event.to_dict() for event in store.list_events("r")] == acknowledged
    try:
        store.save_snapshot("r", RunState("r", data={"turn": turn, "text": "y" * 40_000}))
    except StoreFull:
        pass
assert refused
print(json.dumps(acknowledged))
"""


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
def test_a_full_disk_is_an_error_after_which_the_same_store_goes_on(tmp_path: Path, kind: str) -> None:
    place = Place(kind, str(tmp_path / "store"))

    acknowledged = json.loads(finish(place.start_process(UNTIL_FULL)))

    store = place.open()
    assert [event.to_dict() for event in store.list_events("r")] == acknowledged
    assert [event["seq"] for event in acknowledged] == list(range(1, len(acknowledged) + 1))
    assert store.load_latest("r").data["turn"] == 3
    assert store.save_event(progress()).seq == len(acknowledged) + 1
    place.close()


def test_a_failed_sync_is_an_error_and_the_event_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import holdfast.runtime.checkpoint.jsonl.run_file as module

    def fail(_fd: int) -> None:
        raise OSError(5, "Input/output error")

    store = JSONLCheckpointer(tmp_path)
    saved = fill(store)
    with monkeypatch.context() as patched:
        patched.setattr(module, "sync_data", fail)
        with pytest.raises(HoldfastError) as caught:
            store.save_event(progress())

    assert caught.value.code == "store_full"
    assert store.list_events("r") == JSONLCheckpointer(tmp_path).list_events("r") == saved
    assert store.save_event(progress()).seq == 4


# -- other versions, and stores that are just being made --------------------------------------------------------------


def test_a_newer_sqlite_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    SQLiteCheckpointer(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 999")
    connection.close()

    with pytest.raises(StoreNewer) as caught:
        SQLiteCheckpointer(path)

    assert caught.value.code == "store_newer"
    assert caught.value.hint


def test_a_newer_jsonl_store_is_refused(tmp_path: Path) -> None:
    store = JSONLCheckpointer(tmp_path)
    fill(store)
    (tmp_path / ".holdfast-format").write_text("999\n")

    with pytest.raises(StoreNewer) as caught:
        JSONLCheckpointer(tmp_path)

    assert caught.value.code == "store_newer"


def test_a_store_that_became_newer_before_the_first_write_is_refused(tmp_path: Path) -> None:
    store = JSONLCheckpointer(tmp_path)
    (tmp_path / ".holdfast-format").write_text("2")

    with pytest.raises(StoreNewer):
        store.save_event(progress())

    assert store.list_runs() == []


@pytest.mark.parametrize("text", ["", "one", "-1", "1.5", "\0"])
def test_a_damaged_format_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / ".holdfast-format").write_text(text)

    with pytest.raises(StoreUnreadable):
        JSONLCheckpointer(tmp_path)


def test_a_folder_without_a_format_file_is_taken_as_it_is(tmp_path: Path) -> None:
    fill(JSONLCheckpointer(tmp_path))
    (tmp_path / ".holdfast-format").unlink()

    store = JSONLCheckpointer(tmp_path)

    assert seqs(store) == [1, 2, 3]
    assert store.save_event(progress()).seq == 4
    assert (tmp_path / ".holdfast-format").read_text() == "1\n"


@pytest.mark.parametrize("make", [Path.touch, lambda path: sqlite3.connect(path).close()])
def test_an_empty_file_becomes_a_sqlite_store(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "holdfast.db"
    make(path)

    store = SQLiteCheckpointer(path)

    assert store.save_event(progress()).seq == 1
    store.close()
    assert sqlite3.connect(path).execute("PRAGMA user_version").fetchone()[0] >= 1


def test_a_sqlite_file_of_somebody_else_keeps_its_tables(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)")
    connection.close()

    store = SQLiteCheckpointer(path)
    store.save_event(progress())
    store.close()

    assert sqlite3.connect(path).execute("SELECT x FROM theirs").fetchall() == [(1,)]


MAKING = """
print("!", end="", flush=True)
store = open_store(*args)
for _ in range(50):
    store.save_event(progress())
    print(".", end="", flush=True)
"""


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
def test_a_kill_while_the_store_is_being_made_is_recovered_from(tmp_path: Path, kind: str) -> None:
    rng = random.Random(SEED)
    for attempt in range(8):
        place = Place(kind, str(tmp_path / f"store-{attempt}"))
        with Place("memory", "").start_process(MAKING, kind, place.target) as process:
            assert process.stdout.read(1) == "!"
            threading.Event().wait(rng.uniform(0, 0.02))
            process.kill()
            acknowledged = len(process.stdout.read())

        store = place.open()
        found = seqs(store)
        assert found == list(range(1, len(found) + 1))
        assert acknowledged <= len(found) <= acknowledged + 1
        assert store.save_event(progress()).seq == len(found) + 1
        place.close()


def test_a_database_of_another_program_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, run_id TEXT, seq INTEGER, data TEXT)")
    other.close()

    with pytest.raises(StoreUnreadable, match="another program"):
        SQLiteCheckpointer(path)

    other = sqlite3.connect(path)
    assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("events",)]
    other.close()


def test_a_relative_folder_stays_where_it_was_when_the_process_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    store = JSONLCheckpointer("journals")
    monkeypatch.chdir(tmp_path / "elsewhere")

    store.save_event(progress("r"))

    assert (tmp_path / "journals" / "r" / "events.jsonl").exists()
    assert not any((tmp_path / "elsewhere").iterdir())
