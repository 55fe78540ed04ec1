"""What all tests share: one Postgres, and compiled modules."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.postgres import fresh_schema, running_server


def _keep_compiled_modules() -> None:
    """Where Python is told to write no bytecode, every process would compile the agent framework anew: for seconds."""
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        folder = Path(__file__).parents[1] / ".pytest_cache" / "bytecode"
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder)
        sys.dont_write_bytecode, sys.pycache_prefix = False, str(folder)


_keep_compiled_modules()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with running_server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty database, once of each kind."""
    with contextlib.ExitStack() as stack:
        if request.param == "postgres":
            yield stack.enter_context(fresh_schema(request.getfixturevalue("postgres_url")))
        else:
            yield f"sqlite+aiosqlite:///{tmp_path}/data/holdfast.db"
