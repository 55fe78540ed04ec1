"""One running API per test, on SQLite, with a client for each role; and a real Postgres for the tests that want one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.api.world import FAST, Api, make_repository, open_api

from holdfast import engine
from holdfast.api.options import ServerOptions


@pytest.fixture
def options() -> ServerOptions:
    return FAST


@pytest.fixture
async def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: ServerOptions) -> AsyncIterator[Api]:
    monkeypatch.setattr(engine, "build_agent", engine.build_agent)
    monkeypatch.setenv("HOLDFAST_CONFIG", str(tmp_path / "config" / "config.toml"))
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.toml").write_text("")
    async with open_api(tmp_path, options) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A world for servers that are processes of their own."""
    (tmp_path / "config.toml").write_text("")
    monkeypatch.setenv("HOLDFAST_CONFIG", str(tmp_path / "config.toml"))
    make_repository(tmp_path / "work" / "repo")
    (tmp_path / "gates").mkdir()
    return tmp_path
