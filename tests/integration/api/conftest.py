"""One running API per test, on SQLite, with a client for each role; and a real Postgres for the tests that want one."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.api.server_world import FAST, Api, make_repository, open_api

from holdfast import engine
from holdfast.api.options import ServerOptions
from holdfast.api.server import health_probe


@pytest.fixture
def options() -> ServerOptions:
    return FAST


@pytest.fixture(scope="session")
def first_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_repository(tmp_path_factory.mktemp("repositories") / "repo")


@pytest.fixture
def furnished(tmp_path: Path, first_repository: Path, migrated: Path) -> Path:
    """A folder with a repository and an empty database, both copied: making them anew takes longer than most tests."""
    shutil.copytree(first_repository, tmp_path / "work" / "repo")
    (tmp_path / "data").mkdir()
    shutil.copy(migrated, tmp_path / "data" / "holdfast.db")
    (tmp_path / "gates").mkdir()
    return tmp_path


@pytest.fixture
async def api(furnished: Path, monkeypatch: pytest.MonkeyPatch, options: ServerOptions) -> AsyncIterator[Api]:
    monkeypatch.setattr(engine, "build_agent", engine.build_agent)
    monkeypatch.setattr(health_probe, "_WAIT_S", 600.0)  # a busy machine is no broken server
    monkeypatch.setenv("HOLDFAST_CONFIG", str(furnished / "config" / "config.toml"))
    (furnished / "config").mkdir()
    (furnished / "config" / "config.toml").write_text("")
    async with open_api(furnished, options) as opened:
        yield opened


@pytest.fixture
def folder(furnished: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A world for servers that are processes of their own."""
    (furnished / "config.toml").write_text("")
    monkeypatch.setenv("HOLDFAST_CONFIG", str(furnished / "config.toml"))
    return furnished
