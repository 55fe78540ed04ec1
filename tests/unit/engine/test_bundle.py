"""A bundle: whatever is changed in it is found, and the same run gives the same file."""

import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from holdfast.engine.bundle import MAX_BYTES, Bundle, check_bundle, write_bundle
from holdfast.errors import HoldfastError, JournalCorrupt, StoreNewer, StoreUnreadable
from holdfast.runtime.checkpoint import InMemoryCheckpointer, JSONLCheckpointer
from holdfast.runtime.events import Event, EventKind, create_event

FILES = {"run.json": b"{}", "artifacts/spec/1.1.json": b'{"a": 1}'}


def make_events(run_id: str = "r") -> list[Event]:
    store = InMemoryCheckpointer()
    kinds = (EventKind.RUN_CREATED, EventKind.RUN_STARTED, "of.a.newer.version", EventKind.RUN_COMPLETED)
    return [store.save_event(create_event(run_id, kind, text="ä\r\u2028")) for kind in kinds]


def export(path: Path, events: list[Event] | None = None) -> Bundle:
    return write_bundle(path, "r", make_events() if events is None else events, FILES)


def read(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewrite(path: Path, contents: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)


def test_what_was_exported_is_what_is_found(tmp_path: Path) -> None:
    bundle = export(tmp_path / "a.zip")

    assert check_bundle(tmp_path / "a.zip") == bundle
    assert (bundle.run_id, bundle.state, bundle.events) == ("r", "completed", 4)
    assert bundle.files == ("artifacts/spec/1.1.json", "run.json")


def test_the_same_run_gives_the_same_file(tmp_path: Path) -> None:
    events = make_events()

    first, second = export(tmp_path / "a.zip", events), export(tmp_path / "b.zip", events)

    assert first == second
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_a_run_without_events_can_be_exported_too(tmp_path: Path) -> None:
    bundle = export(tmp_path / "a.zip", [])

    assert check_bundle(tmp_path / "a.zip") == bundle
    assert (bundle.state, bundle.events) == ("pending", 0)


def test_the_journal_in_it_is_one_that_a_store_reads(tmp_path: Path) -> None:
    events = make_events()
    export(tmp_path / "a.zip", events)
    (tmp_path / "store" / "r").mkdir(parents=True)
    (tmp_path / "store" / "r" / "events.jsonl").write_bytes(read(tmp_path / "a.zip")["events.jsonl"])

    assert JSONLCheckpointer(tmp_path / "store").list_events("r") == events


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_text("mine")

    with pytest.raises(FileExistsError):
        export(tmp_path / "a.zip")

    assert (tmp_path / "a.zip").read_text() == "mine"


@pytest.mark.parametrize("name", ["events.jsonl", "run.json", "artifacts/spec/1.1.json"])
def test_every_changed_missing_or_added_file_is_found(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.zip"
    export(path)
    good = read(path)
    without = {key: content for key, content in good.items() if key != name}

    for bad in ({**good, name: good[name] + b" "}, {**good, name: b""}, without, {**good, "more.txt": b""}):
        rewrite(path, bad)
        with pytest.raises(JournalCorrupt, match="'r', was changed"):
            check_bundle(path)


def test_a_journal_that_was_changed_with_its_digest_is_found_by_its_chain(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    export(path)
    good = read(path)
    lines = good["events.jsonl"].splitlines(keepends=True)
    changed = [b"".join(lines[:3]), b"".join([lines[0], *lines[2:]]), good["events.jsonl"].replace(b"newer", b"other")]

    for journal in (*changed, good["events.jsonl"] + b"{"):
        manifest = json.loads(good["manifest.json"])
        manifest["files"]["events.jsonl"] = hashlib.sha256(journal).hexdigest()
        rewrite(path, {**good, "manifest.json": json.dumps(manifest).encode(), "events.jsonl": journal})
        with pytest.raises(JournalCorrupt, match="'r'"):
            check_bundle(path)


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    cases: list[bytes | dict[str, bytes]] = [b"", b"text", {}, {"manifest.json": b"["}, {"manifest.json": b"{}"}]

    for case in cases:
        if isinstance(case, bytes):
            path.write_bytes(case)
        else:
            rewrite(path, case)
        with pytest.raises(StoreUnreadable):
            check_bundle(path)
    with pytest.raises(StoreUnreadable):
        check_bundle(tmp_path / "missing.zip")


def test_a_newer_one_is_refused_as_newer(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    export(path)
    good = read(path)
    rewrite(path, {**good, "manifest.json": good["manifest.json"].replace(b'"format": 1', b'"format": 2')})

    with pytest.raises(StoreNewer):
        check_bundle(path)


def test_one_that_would_fill_the_memory_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    export(path)
    content = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        size = archive.getinfo("run.json").file_size
    at = content.rindex(b"run.json") - 46 + 24  # where the central directory has the size
    assert int.from_bytes(content[at : at + 4], "little") == size
    path.write_bytes(content[:at] + (MAX_BYTES + 1).to_bytes(4, "little") + content[at + 4 :])

    with pytest.raises(HoldfastError, match="more than"):
        check_bundle(path)
