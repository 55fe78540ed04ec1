"""Who may read a store, and what a damaged one is said to be."""

import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from holdfast.config import load_config
from holdfast.doctor import check_all
from holdfast.errors import StoreFull, StoreUnreadable
from holdfast.persistence.db import Database
from holdfast.persistence.models import RunRow
from holdfast.runtime.checkpoint import JSONLCheckpointer, SQLiteCheckpointer
from holdfast.runtime.checkpoint.sqlite.transaction import to_store_error
from holdfast.runtime.events import EventKind, create_event


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o022, 0o000, 0o002])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
async def test_a_new_database_and_its_folder_are_its_owners_alone(tmp_path: Path) -> None:
    db = Database(f"sqlite+aiosqlite:///{tmp_path}/data/holdfast.db")
    await db.init_schema()
    async with db.session() as session:
        await session.execute(select(RunRow))
    db.store.save_event(create_event("r", EventKind.RUN_CREATED))

    files = sorted(path.name for path in (tmp_path / "data").iterdir() if path.is_file())
    assert {"holdfast.db", "holdfast.db-wal", "holdfast.db-shm"} <= set(files)
    assert {
        mode(tmp_path / "data" / name) for name in files if name.startswith("holdfast.db-") or name[-3:] == ".db"
    } == {0o600}
    assert mode(tmp_path / "data") == 0o700
    await db.dispose()


@pytest.mark.usefixtures("umask")
def test_a_new_journal_of_files_is_its_owners_alone(tmp_path: Path) -> None:
    store = JSONLCheckpointer(tmp_path / "journals")
    store.save_event(create_event("r", EventKind.RUN_CREATED))
    store.close()

    assert mode(tmp_path / "journals") == 0o700
    assert all(mode(path) & 0o077 == 0 for path in (tmp_path / "journals").rglob("*.jsonl"))


async def test_what_an_earlier_version_left_open_is_closed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    db = Database(f"sqlite+aiosqlite:///{data}/holdfast.db")
    await db.init_schema()
    for path in (data, *(data / f"holdfast.db{end}" for end in ("", "-wal", "-shm"))):
        path.chmod(0o755 if path == data else 0o644)
    again = Database(f"sqlite+aiosqlite:///{data}/holdfast.db")
    await again.init_schema()

    assert mode(data) == 0o700
    assert {mode(data / f"holdfast.db{end}") for end in ("", "-wal", "-shm")} == {0o600}
    await again.dispose()
    await db.dispose()


def test_a_folder_that_is_also_somebody_elses_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    tmp_path.chmod(0o755)
    store = SQLiteCheckpointer(str(tmp_path / "holdfast.db"))
    store.save_event(create_event("r", EventKind.RUN_CREATED))
    store.close()

    assert mode(tmp_path) == 0o755
    assert mode(tmp_path / "holdfast.db") == 0o600


def test_doctor_names_what_others_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "elsewhere"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o755)

    found = [check for check in check_all(load_config()) if check.name == "data folder"]

    assert [(check.state, check.remedy) for check in found] == [("warning", f"chmod 700 {tmp_path / 'data'}")]


@pytest.mark.parametrize("damage", ["no database", "torn page"])
async def test_a_damaged_database_is_said_to_be_unreadable(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "holdfast.db"
    db = Database(f"sqlite+aiosqlite:///{path}")
    await db.init_schema()
    await db.dispose()
    content = path.read_bytes()
    path.write_bytes(b"x" * len(content) if damage == "no database" else content[:100] + b"\xff" * (len(content) - 100))

    with pytest.raises(StoreUnreadable):
        async with db.session() as session:
            await session.execute(select(RunRow))
    with pytest.raises(StoreUnreadable):
        await db.init_schema()
    await db.dispose()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("SQLITE_IOERR_READ", StoreUnreadable),
        ("SQLITE_IOERR_SHORT_READ", StoreUnreadable),
        ("SQLITE_IOERR_WRITE", StoreFull),
        ("SQLITE_IOERR_FSYNC", StoreFull),
        ("SQLITE_FULL", StoreFull),
    ],
)
def test_a_disk_that_cannot_be_read_is_not_said_to_be_full(name: str, kind: type[Exception]) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = name
    error.sqlite_errorcode = getattr(sqlite3, name)

    assert type(to_store_error(error, "/data/holdfast.db")) is kind
