"""`world`: an engine, its database on SQLite and on a real Postgres, a repository, and agents told what to do.

After every test the rows of its database agree with its journal, unless the test damaged them on purpose. In `make
test` a test that runs on both stores runs on one: `tests/support/store_sample.py`.
"""

import contextlib
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.support.engine_world import World, make_repo, new_world
from tests.support.postgres_server import fresh_schema
from tests.support.store_sample import leave_out_other_stores

import holdfast.engine
from holdfast.engine.audit import check_database


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_out_other_stores(config, items, Path(__file__).parent)


@pytest.fixture(scope="session")
def plain_repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repo = tmp_path_factory.mktemp("repos") / "repo"
    make_repo(repo)
    return repo


@pytest.fixture
def _agents() -> Iterator[None]:
    """Fail the test that leaves agents of its own in place of the real ones, rather than those after it."""
    original = holdfast.engine.build_agent
    yield
    left, holdfast.engine.build_agent = holdfast.engine.build_agent, original
    assert left is original, "put holdfast.engine.build_agent back, or leave that to `world`"


@pytest.fixture(autouse=True)
def _own_home(_agents: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # `_agents` comes first, and so ends last: after `monkeypatch` has put back what it found.
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An up-to-date database of the test's own."""
    with contextlib.ExitStack() as stack:
        if request.param == "postgres":
            yield stack.enter_context(fresh_schema(request.getfixturevalue("postgres_url")))
        else:
            (tmp_path / "data").mkdir()
            path = tmp_path / "data" / "holdfast.db"
            shutil.copy(request.getfixturevalue("migrated"), path)
            yield f"sqlite+aiosqlite:///{path}"


@pytest.fixture
async def world(database_url: str, tmp_path: Path, plain_repo: Path) -> AsyncIterator[World]:
    with new_world(database_url, tmp_path, plain_repo) as made:
        await made.db.init_schema()
        yield made
        disagreements = [] if made.is_damaged else await check_database(made.db)
        await made.close()
        assert disagreements == []


@pytest.fixture
async def worlds(postgres_url: str, tmp_path: Path, plain_repo: Path) -> AsyncIterator[tuple[World, World]]:
    """Two places on one database: a data directory each."""
    with fresh_schema(postgres_url) as url, new_world(url, tmp_path / "a", plain_repo) as first:
        await first.db.init_schema()
        second = World(url, tmp_path / "b")
        second._keys = first._keys
        yield first, second
        await second.close()
        await first.close()
