"""What all tests share: a time limit, a Postgres, an empty database, a process to fork engines from, kept bytecode."""

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.support import progress_limit as progress
from tests.support.engine_processes import Zygote
from tests.support.postgres_server import fresh_schema, running_server

from holdfast.runtime.clock import set_right


def _keep_compiled_modules() -> None:
    """Where Python is told to write no bytecode, every process would compile the agent framework anew: for seconds."""
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        folder = Path(__file__).parents[1] / ".pytest_cache" / "bytecode"
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder)
        sys.dont_write_bytecode, sys.pycache_prefix = False, str(folder)


_keep_compiled_modules()
# How long an example takes says how busy the machine is.
_CLOCKED = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("tests", deadline=None, suppress_health_check=_CLOCKED)
settings.load_profile("tests")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a job in the background: its children would never hear Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
gc.disable()  # until the tests are collected: what is imported stays, and each look through it takes half a second


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """From here on garbage is looked for among what the tests make."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    set_right(0.0)  # what a test with a wrong clock and Postgres has left in this process
    with progress.watch.armed():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    with progress.watch.armed():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    with progress.watch.armed():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a test that is skipped has failed: every tool is expected to be there."""
    report = yield
    if os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"skipped, which is a failure in CI: {reason}"
    return report


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with running_server() as url:
        yield url


@pytest.fixture(scope="session")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    made = Zygote(tmp_path_factory.mktemp("outcomes"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty SQLite database that is up to date, to be copied."""
    from holdfast.persistence.db import Database

    path = tmp_path_factory.mktemp("databases") / "holdfast.db"

    async def make() -> None:
        db = Database(f"sqlite+aiosqlite:///{path}")
        await db.init_schema()
        await db.dispose()

    asyncio.run(make())
    return path


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty database, once of each kind."""
    with contextlib.ExitStack() as stack:
        if request.param == "postgres":
            yield stack.enter_context(fresh_schema(request.getfixturevalue("postgres_url")))
        else:
            yield f"sqlite+aiosqlite:///{tmp_path}/data/holdfast.db"
