"""Empty databases on SQLite and on a real Postgres, for tests that bring them up to date themselves."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine_processes import Zygote
from tests.postgres import fresh_schema, running_server


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with running_server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with contextlib.ExitStack() as stack:
        if request.param == "postgres":
            yield stack.enter_context(fresh_schema(request.getfixturevalue("postgres_url")))
        else:
            yield f"sqlite+aiosqlite:///{tmp_path}/data/holdfast.db"


@pytest.fixture(scope="session")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    made = Zygote(tmp_path_factory.mktemp("outcomes"), is_light=True)
    yield made
    made.close()
