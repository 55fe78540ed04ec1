"""A Postgres database, a server that drives nothing and never saw a worktree, and machines that drive."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.api.server_world import FAST, Api, make_repository, open_api
from tests.support.postgres_server import fresh_schema

from holdfast import engine


@pytest.fixture
def fleet_url(postgres_url: str) -> Iterator[str]:
    with fresh_schema(postgres_url) as url:
        yield url


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_repository(tmp_path / "work" / "repo")
    (tmp_path / "gates").mkdir()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.toml").write_text('queues = ["runs", "gpu"]\n')
    return tmp_path


@pytest.fixture
def shared_work(folder: Path) -> Path:
    """The folder of the repositories, which all machines are said to see."""
    config = folder / "config" / "config.toml"
    config.write_text(f'{config.read_text()}shared_roots = ["{folder / "work"}"]\n')
    return folder / "work"


@pytest.fixture
async def office(folder: Path, fleet_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    """The API of a server that drives no runs."""
    monkeypatch.setattr(engine, "build_agent", engine.build_agent)
    monkeypatch.setenv("HOLDFAST_CONFIG", str(folder / "config" / "config.toml"))
    async with open_api(folder, replace(FAST, drives_runs=False), database_url=fleet_url) as api:
        yield api
