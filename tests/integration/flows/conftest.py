"""A store of each kind that keeps flows over processes, and a registry of flows of the test's own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.flow_stores import FlowStore, new_flow_store

from holdfast.flows.service import flow_registry


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_registry, "_flows", {})


@pytest.fixture(params=["path", "postgres"])
def flows(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FlowStore]:
    with new_flow_store(request.param, tmp_path, lambda: request.getfixturevalue("postgres_url")) as store:
        yield store
