"""Bad luck with snapshots: cut, changed and half-written ones fall back to the one before, or say so."""

import json
import signal
import sqlite3
from pathlib import Path

import pytest
from tests.support.stores import Place

from holdfast.errors import JournalCorrupt
from holdfast.runtime.checkpoint import JSONLCheckpointer, SQLiteCheckpointer
from holdfast.runtime.state import RunState


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "holdfast.runtime"]


def save_snapshots(folder: Path, count: int = 2) -> list[RunState]:
    states = [RunState("r", data={"n": n, "text": "ä" * 20}, last_seq=n) for n in range(count)]
    for state in states:
        JSONLCheckpointer(folder).save_snapshot("r", state)
    return states


def test_a_snapshot_cut_at_any_byte_falls_back_to_the_backup(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    before, after = save_snapshots(tmp_path)
    file = tmp_path / "r" / "snapshot.json"
    whole = file.read_bytes()

    for end in range(len(whole)):
        file.write_bytes(whole[:end])
        caplog.clear()
        assert JSONLCheckpointer(tmp_path).load_latest("r") == before
        assert messages(caplog) == ["snapshot is damaged, using its backup"]

    file.write_bytes(whole)
    assert JSONLCheckpointer(tmp_path).load_latest("r") == after


def test_a_changed_byte_anywhere_in_a_snapshot_is_found(tmp_path: Path) -> None:
    before, after = save_snapshots(tmp_path)
    file = tmp_path / "r" / "snapshot.json"
    whole = file.read_bytes()

    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x01
        file.write_bytes(damaged)
        assert JSONLCheckpointer(tmp_path).load_latest("r") in (before, after)


def test_two_damaged_snapshots_are_an_error_until_a_new_one_is_saved(tmp_path: Path) -> None:
    save_snapshots(tmp_path)
    for name in ("snapshot.json", "snapshot.backup.json"):
        (tmp_path / "r" / name).write_bytes(b'{"version":1')

    with pytest.raises(JournalCorrupt) as caught:
        JSONLCheckpointer(tmp_path).load_latest("r")

    assert caught.value.facts["run_id"] == "r"
    JSONLCheckpointer(tmp_path).save_snapshot("r", RunState("r"))
    assert JSONLCheckpointer(tmp_path).load_latest("r") == RunState("r")


def test_a_damaged_snapshot_never_replaces_a_good_backup(tmp_path: Path) -> None:
    before, _ = save_snapshots(tmp_path)
    file = tmp_path / "r" / "snapshot.json"
    file.write_bytes(b"half")

    JSONLCheckpointer(tmp_path).save_snapshot("r", RunState("r", purpose="new"))
    file.write_bytes(b"half again")

    assert JSONLCheckpointer(tmp_path).load_latest("r") == before


def test_a_snapshot_that_is_gone_is_found_in_its_backup(tmp_path: Path) -> None:
    before, _ = save_snapshots(tmp_path)
    (tmp_path / "r" / "snapshot.json").unlink()

    assert JSONLCheckpointer(tmp_path).load_latest("r") == before
    assert JSONLCheckpointer(tmp_path).list_runs() == ["r"]


@pytest.mark.parametrize("dies_at", ["write_synced", "_keep_as_backup", "sync_folder"])
def test_a_snapshot_is_old_or_new_wherever_its_writer_dies(tmp_path: Path, dies_at: str) -> None:
    _, after = save_snapshots(tmp_path)
    code = (
        "import os, signal\nfrom holdfast.runtime.state import RunState\n"
        "import holdfast.runtime.checkpoint.jsonl.snapshot as module\n"
        "real = getattr(module, args[0])\n"
        "def die(*a, **k):\n    real(*a, **k)\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "setattr(module, args[0], die)\nstore.save_snapshot('r', RunState('r', purpose='newest'))\n"
    )
    with Place("jsonl", str(tmp_path)).start_process(code, dies_at) as process:
        assert process.wait() == -signal.SIGKILL

    found = JSONLCheckpointer(tmp_path).load_latest("r")
    assert found == (RunState("r", purpose="newest") if dies_at == "sync_folder" else after)
    for n in range(2):
        JSONLCheckpointer(tmp_path).save_snapshot("r", RunState("r", purpose=str(n)))
    assert JSONLCheckpointer(tmp_path).load_latest("r").purpose == "1"
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == [
        "events.jsonl",
        "snapshot.backup.json",
        "snapshot.json",
    ]


@pytest.mark.parametrize("damage", ["body = substr(body, 1, length(body) / 2)", "hash = x'00'", "body = '{}'"])
def test_a_damaged_snapshot_row_is_an_error(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "holdfast.db"
    store = SQLiteCheckpointer(path)
    store.save_snapshot("r", RunState("r"))
    store.close()
    connection = sqlite3.connect(path)
    connection.execute(f"UPDATE snapshots SET {damage}")
    connection.commit()
    connection.close()

    with pytest.raises(JournalCorrupt) as caught:
        SQLiteCheckpointer(path).load_latest("r")

    assert caught.value.facts["run_id"] == "r"


def test_a_snapshot_written_by_another_tool_is_read_and_kept_as_the_backup(tmp_path: Path) -> None:
    foreign = RunState("r", current_step=4)
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "snapshot.json").write_text(json.dumps(foreign.to_dict(), indent=2))
    store = JSONLCheckpointer(tmp_path)

    assert store.load_latest("r") == foreign
    store.save_snapshot("r", RunState("r", current_step=5))
    (tmp_path / "r" / "snapshot.json").write_text("{")
    assert store.load_latest("r") == foreign
