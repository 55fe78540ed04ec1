"""Bad luck with JSONL files: torn tails, changed, lost and moved lines, files put back while the store is open."""

import json
import os
import threading
from pathlib import Path

import pytest
from tests.support.stores import Place, progress, seqs

from holdfast.errors import JournalCorrupt
from holdfast.runtime.checkpoint import JSONLCheckpointer
from holdfast.runtime.events import Event


def fill(store: JSONLCheckpointer, count: int = 3, run_id: str = "r") -> list[Event]:
    return [store.save_event(progress(run_id, n=n, text="ä")) for n in range(count)]


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "holdfast.runtime"]


# -- the tail --------------------------------------------------------------------------------------------------


def test_a_tail_torn_at_any_byte_is_reported_once_and_repaired(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved = fill(JSONLCheckpointer(tmp_path))
    file = tmp_path / "r" / "events.jsonl"
    whole = file.read_bytes()
    last_line = whole.rindex(b"\n", 0, -1) + 1

    for end in range(last_line + 1, len(whole)):
        file.write_bytes(whole[:end])
        caplog.clear()

        assert JSONLCheckpointer(tmp_path).list_events("r") == saved[:2]
        assert messages(caplog) == ["journal ended in a torn line"]
        assert caplog.records[0].run_id == "r"
        assert file.read_bytes() == whole[:last_line]
        assert JSONLCheckpointer(tmp_path).list_events("r") == saved[:2]
        assert len(messages(caplog)) == 1


def test_appending_after_a_torn_tail_goes_on_from_the_last_whole_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved = fill(JSONLCheckpointer(tmp_path))
    file = tmp_path / "r" / "events.jsonl"
    for tail in (b"{", b"\0" * 500, file.read_bytes().splitlines()[-1]):
        with file.open("ab") as appending:
            appending.write(tail)

        saved.append(JSONLCheckpointer(tmp_path).save_event(progress(n="after")))

    assert messages(caplog) == ["journal ended in a torn line"] * 3
    assert JSONLCheckpointer(tmp_path).list_events("r") == saved


def test_an_open_store_notices_a_tail_that_another_writer_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = JSONLCheckpointer(tmp_path)
    saved = fill(store)
    with (tmp_path / "r" / "events.jsonl").open("ab") as appending:
        appending.write(b'{"run_id":"r","se')

    assert store.list_events("r", 2) == saved[2:]
    assert store.save_event(progress()).seq == 4
    assert messages(caplog) == ["journal ended in a torn line"]


def test_a_run_that_never_got_a_whole_line_is_no_run(tmp_path: Path) -> None:
    store = JSONLCheckpointer(tmp_path)
    fill(store, run_id="other")
    (tmp_path / "empty folder").mkdir()
    (tmp_path / "empty file").mkdir()
    (tmp_path / "empty file" / "events.jsonl").touch()
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "events.jsonl").write_bytes(b'{"run_id"')
    (tmp_path / "a file").touch()

    assert store.list_runs() == ["other"]
    assert store.save_event(progress("torn")).seq == 1


def test_the_order_of_runs_is_not_changed_by_a_repair(tmp_path: Path) -> None:
    store = JSONLCheckpointer(tmp_path)
    fill(store, run_id="a")
    fill(store, run_id="b")
    file = tmp_path / "a" / "events.jsonl"
    before = file.stat()
    with file.open("ab") as appending:
        appending.write(b"{")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    JSONLCheckpointer(tmp_path).list_events("a")

    assert JSONLCheckpointer(tmp_path).list_runs() == ["b", "a"]


def test_a_line_that_is_being_written_is_not_taken_for_a_torn_one(tmp_path: Path) -> None:
    """A writer stands still between the two halves of its line; readers wait for it instead of cutting it off."""
    place = Place("jsonl", str(tmp_path))
    saved = fill(JSONLCheckpointer(tmp_path))
    code = """
import os
import holdfast.runtime.checkpoint.jsonl.run_file as module
def write_in_halves(fd, line, offset):
    os.pwrite(fd, line[:20], offset)
    print("half", flush=True)
    sys.stdin.read()
    os.pwrite(fd, line[20:], offset + 20)
module.write_all = write_in_halves
store.save_event(progress(n="slow"))
"""
    found: list[list[int]] = []
    with place.start_process(code) as writer:
        assert writer.stdout.readline() == "half\n"
        reader = threading.Thread(target=lambda: found.append(seqs(JSONLCheckpointer(tmp_path))))
        reader.start()
        writer.stdin.close()
        assert writer.wait() == 0
        reader.join()

    assert found == [[1, 2, 3, 4]]
    assert seqs(JSONLCheckpointer(tmp_path)) == [*(event.seq for event in saved), 4]


# -- complete lines --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flip", [0x01, 0x20, 0x80, 0xFF])
@pytest.mark.parametrize("number", [2, 3])
def test_a_changed_byte_anywhere_in_a_complete_line_is_found(tmp_path: Path, flip: int, number: int) -> None:
    saved = fill(JSONLCheckpointer(tmp_path))
    file = tmp_path / "r" / "events.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    start = sum(map(len, lines[: number - 1]))

    for position in range(start, start + len(lines[number - 1]) - 1):
        damaged = bytearray(b"".join(lines))
        damaged[position] ^= flip
        if damaged[position] == ord("\n"):
            continue  # two lines, of which the last one is checked below
        file.write_bytes(damaged)

        with pytest.raises(JournalCorrupt) as caught:
            JSONLCheckpointer(tmp_path).list_events("r")
        assert (caught.value.facts["run_id"], caught.value.facts["line"]) == ("r", number)
        assert "'r'" in caught.value.message
        assert f"line {number}" in caught.value.message

    file.write_bytes(b"".join(lines))
    assert JSONLCheckpointer(tmp_path).list_events("r") == saved


@pytest.mark.parametrize("damage", ["lost", "doubled", "swapped", "of another run", "empty", "split", "joined"])
def test_lost_doubled_and_moved_lines_are_found(tmp_path: Path, damage: str) -> None:
    store = JSONLCheckpointer(tmp_path)
    fill(store, 4)
    fill(store, 4, "other")
    file = tmp_path / "r" / "events.jsonl"
    one, two, three, four = file.read_bytes().splitlines(keepends=True)
    theirs = (tmp_path / "other" / "events.jsonl").read_bytes().splitlines(keepends=True)[1]
    damaged = {
        "lost": [one, three, four],
        "doubled": [one, two, two, three, four],
        "swapped": [one, three, two, four],
        "of another run": [one, theirs, three, four],
        "empty": [one, b"\n", two, three, four],
        "split": [one, two[:30] + b"\n" + two[30:], three, four],
        "joined": [one, two[:-1] + three, four],
    }
    file.write_bytes(b"".join(damaged[damage]))

    with pytest.raises(JournalCorrupt):
        JSONLCheckpointer(tmp_path).list_events("r")
    with pytest.raises(JournalCorrupt):
        JSONLCheckpointer(tmp_path).save_event(progress())
    assert seqs(JSONLCheckpointer(tmp_path), "other") == [1, 2, 3, 4]
    assert file.read_bytes() == b"".join(damaged[damage])


def test_damage_is_found_by_a_store_that_has_read_the_file_before(tmp_path: Path) -> None:
    store = JSONLCheckpointer(tmp_path)
    fill(store, 4)
    file = tmp_path / "r" / "events.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"n":1', b'"n":7'))

    with pytest.raises(JournalCorrupt) as caught:
        store.list_events("r")

    assert caught.value.facts["line"] == 2


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"7",
        b"null",
        b"{}",
        b'{"run_id":"r"}',
        b'{"run_id":"r","kind":"x"}',
        b'{"run_id":"r","seq":4}',
        b'{"run_id":"r","seq":3,"kind":"x"}',
        b'{"run_id":"r","seq":true,"kind":"x"}',
        b'{"run_id":"r","seq":"4","kind":"x"}',
        b'{"run_id":"r","seq":4.5,"kind":"x"}',
        b'{"run_id":"other","seq":4,"kind":"x"}',
        b'{"run_id":"r","seq":4,"kind":7}',
        b'{"run_id":"r","seq":4,"kind":"x","payload":[]}',
        b'{"run_id":"r","seq":4,"kind":"x","ts":"now"}',
        b'{"run_id":"r","seq":4,"kind":"x","hash":"mine"}',
        b'{"run_id":"r","seq":4,"kind":"x"} ,',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_an_invalid_complete_line_is_an_error(tmp_path: Path, line: bytes) -> None:
    fill(JSONLCheckpointer(tmp_path))
    with (tmp_path / "r" / "events.jsonl").open("ab") as appending:
        appending.write(line + b"\n")

    with pytest.raises(JournalCorrupt) as caught:
        JSONLCheckpointer(tmp_path).list_events("r")

    assert caught.value.facts["line"] == 4


def test_a_line_of_another_tool_is_accepted_and_chained_over(tmp_path: Path) -> None:
    saved = fill(JSONLCheckpointer(tmp_path))
    file = tmp_path / "r" / "events.jsonl"
    foreign = progress(seq=7, n="by hand")
    with file.open("a") as appending:
        appending.write(json.dumps(foreign.to_dict()) + "\n")
        appending.write('{"kind": "note", "run_id": "r", "seq": 8}\n')

    store = JSONLCheckpointer(tmp_path)
    saved += [foreign, *store.list_events("r", 7), store.save_event(progress())]

    assert [event.seq for event in saved] == [1, 2, 3, 7, 8, 9]
    assert JSONLCheckpointer(tmp_path).list_events("r") == saved
    assert JSONLCheckpointer(tmp_path).save_event(foreign) == foreign
    file.write_text(file.read_text().replace("by hand", "by hnad"))
    with pytest.raises(JournalCorrupt) as caught:
        JSONLCheckpointer(tmp_path).list_events("r")
    assert caught.value.facts["line"] == 6


def test_a_short_line_of_another_tool_can_be_the_first(tmp_path: Path) -> None:
    file = tmp_path / "r" / "events.jsonl"
    file.parent.mkdir()
    file.write_text('{"kind": "note", "run_id": "r", "seq": 1}\n')
    store = JSONLCheckpointer(tmp_path)

    assert seqs(store) == [1]
    assert store.save_event(progress()).seq == 2
    assert seqs(JSONLCheckpointer(tmp_path)) == [1, 2]


def test_an_open_store_goes_on_with_a_file_that_was_put_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = JSONLCheckpointer(tmp_path)
    fill(store, 300)
    file = tmp_path / "r" / "events.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:200]))

    assert seqs(store, "r", 190) == list(range(191, 201))
    assert store.save_event(progress()).seq == 201
    assert messages(caplog) == ["journal was cut by another program"]
    file.unlink()
    file.write_bytes(b"".join(lines))
    assert seqs(store, "r", 298) == [299, 300]
