"""`new_world` makes an empty database and a repository for each run of the workflow in `child.py`."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.engine_world import World, make_repo
from tests.support.postgres_server import fresh_schema

from holdfast.persistence.schema import upgrade_rows

NewWorld = Callable[[str], World]


@pytest.fixture(scope="session")
def new_world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewWorld]:
    repo = tmp_path_factory.mktemp("repos") / "repo"
    make_repo(repo)
    with ExitStack() as stack:

        def make(kind: str) -> World:
            folder = tmp_path_factory.mktemp(kind)
            (folder / "data").mkdir()
            shutil.copytree(repo, folder / "repo")
            url = f"sqlite+aiosqlite:///{folder}/data/holdfast.db"
            if kind == "postgres":
                url = stack.enter_context(fresh_schema(request.getfixturevalue("postgres_url")))
            world = World(url, folder)
            assert world.db.store is not None  # the journal's tables
            upgrade_rows(world.db._engine_url(is_async=False))
            return world

        yield make


@pytest.fixture(autouse=True)
def _no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
