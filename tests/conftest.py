"""What all tests share: one Postgres, compiled modules, and that the slowest suites run in part by default.

`make test all=1` and `make torture` run them whole.
"""

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.postgres import fresh_schema, running_server

IS_WHOLE = bool(os.environ.get("ALL_TESTS") or os.environ.get("HOLDFAST_TORTURE"))
# How many tests of a file run by default: real terminals, browsers and fleets of clients take minutes, and `make test`
# is to stay one's first reflex.
FIRST_ONLY = {
    "tests/browser/test_budget.py": 1,
    "tests/browser/test_catalog.py": 1,
    "tests/browser/test_catalog_access.py": 0,
    "tests/browser/test_deciding.py": 4,
    "tests/browser/test_everyone.py": 2,
    "tests/browser/test_health.py": 0,
    "tests/browser/test_login.py": 1,
    "tests/browser/test_new_run.py": 1,
    "tests/browser/test_scale.py": 0,
    "tests/browser/test_settings.py": 1,
    "tests/browser/test_watching.py": 4,
    "tests/integration/api/test_torture.py": 0,
}


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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if IS_WHOLE or any("::" in argument or argument.endswith(".py") for argument in config.args):
        return  # asked for by name
    seen: Counter[str] = Counter()
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        path = item.path.relative_to(config.rootpath).as_posix()
        seen[path] += 1
        (left if seen[path] > FIRST_ONLY.get(path, len(items)) else kept).append(item)
    items[:] = kept
    if left:
        config.hook.pytest_deselected(items=left)
