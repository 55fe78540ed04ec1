from pathlib import Path

import pytest
from tests.support.agents.phase import Phase


@pytest.fixture
def phase(tmp_path: Path) -> Phase:
    return Phase(tmp_path).prepare()
