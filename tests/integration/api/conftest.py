"""One running API per test, on SQLite, with a client for each role; and a real Postgres for the tests that want one."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.integration.api.world import Api, make_repository, open_api
from tests.postgres import fresh_schema, running_server

from holdfast import engine


@pytest.fixture
async def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    monkeypatch.setattr(engine, "build_agent", engine.build_agent)
    monkeypatch.setenv("HOLDFAST_CONFIG", str(tmp_path / "config" / "config.toml"))
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.toml").write_text("")
    async with open_api(tmp_path) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A world for servers that are processes of their own."""
    (tmp_path / "config.toml").write_text("")
    monkeypatch.setenv("HOLDFAST_CONFIG", str(tmp_path / "config.toml"))
    make_repository(tmp_path / "work" / "repo")
    (tmp_path / "gates").mkdir()
    return tmp_path


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    with running_server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with contextlib.ExitStack() as stack:
        if request.param == "postgres":
            yield stack.enter_context(fresh_schema(request.getfixturevalue("server_url")))
        else:
            yield f"sqlite+aiosqlite:///{tmp_path}/data/holdfast.db"
