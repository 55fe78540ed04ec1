"""`new_run` makes runs of the flow in `child.py`, each on its own store; `get_reference` gives an undisturbed one."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.support.crash.flow_run import GetReference, NewRun, Run
from tests.support.crash.points import SEED
from tests.support.stores import new_place


def pytest_report_header() -> str:
    return f"crash points are sampled with HOLDFAST_SEED={SEED}"


@pytest.fixture(scope="session")
def new_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewRun]:
    with ExitStack() as stack:

        def make(kind: str) -> Run:
            folder = tmp_path_factory.mktemp(kind)
            store_folder = folder / "store"
            store_folder.mkdir()
            place = stack.enter_context(new_place(kind, store_folder, lambda: request.getfixturevalue("postgres_url")))
            return Run(kind, place.target, folder)

        yield make


@pytest.fixture(scope="session")
def get_reference(new_run: NewRun) -> GetReference:
    made: dict[str, tuple[Run, dict[str, Any]]] = {}

    def get(kind: str) -> tuple[Run, dict[str, Any]]:
        if kind not in made:
            run = new_run(kind)
            made[kind] = (run, run.finish())
        return made[kind]

    return get
