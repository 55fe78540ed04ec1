"""`store` is an empty store of every kind; `place` opens it again, here or elsewhere; `disk_place` leaves out memory.

A Postgres server is started once per session, on first use. In `make test` each promise is tried on one store:
`tests/support/store_sample.py`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.store_sample import leave_out_other_stores
from tests.support.stores import DISK_KINDS, KINDS, Place, new_place

from holdfast.runtime.checkpoint import Checkpointer


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_out_other_stores(config, items, Path(__file__).parent)


@pytest.fixture
def get_postgres_url(request: pytest.FixtureRequest) -> Callable[[], str]:
    return lambda: str(request.getfixturevalue("postgres_url"))


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path, get_postgres_url: Callable[[], str]) -> Iterator[Place]:
    yield from _places(request.param, tmp_path, get_postgres_url)


@pytest.fixture(params=DISK_KINDS)
def disk_place(request: pytest.FixtureRequest, tmp_path: Path, get_postgres_url: Callable[[], str]) -> Iterator[Place]:
    yield from _places(request.param, tmp_path, get_postgres_url)


def _places(kind: str, folder: Path, get_postgres_url: Callable[[], str]) -> Iterator[Place]:
    with new_place(kind, folder, get_postgres_url) as place:
        yield place


@pytest.fixture
def store(place: Place) -> Checkpointer:
    return place.open()
