"""Processes that can be killed, for tests that bring empty databases up to date themselves."""

from collections.abc import Iterator

import pytest
from tests.support.engine_processes import Zygote


@pytest.fixture(scope="session")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    made = Zygote(tmp_path_factory.mktemp("outcomes"), is_light=True)
    yield made
    made.close()
