"""`flows` is whatever a user may name as the store of a flow; `disk_flows` those that outlive a process, `fenced_flows`
those that know of a live owner in another one.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.flow_stores import DISK_KINDS, FENCED_KINDS, KINDS, FlowStore, new_flow_store


@pytest.fixture(params=KINDS)
def flows(request: pytest.FixtureRequest, tmp_path: Path, get_postgres_url: Callable[[], str]) -> Iterator[FlowStore]:
    yield from _stores(request.param, tmp_path, get_postgres_url)


@pytest.fixture(params=DISK_KINDS)
def disk_flows(
    request: pytest.FixtureRequest, tmp_path: Path, get_postgres_url: Callable[[], str]
) -> Iterator[FlowStore]:
    yield from _stores(request.param, tmp_path, get_postgres_url)


@pytest.fixture(params=FENCED_KINDS)
def fenced_flows(
    request: pytest.FixtureRequest, tmp_path: Path, get_postgres_url: Callable[[], str]
) -> Iterator[FlowStore]:
    yield from _stores(request.param, tmp_path, get_postgres_url)


def _stores(kind: str, folder: Path, get_postgres_url: Callable[[], str]) -> Iterator[FlowStore]:
    with new_flow_store(kind, folder, get_postgres_url) as store:
        yield store
