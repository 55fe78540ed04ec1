"""The pages' modules without a DOM, by node's own test runner."""

import subprocess
from pathlib import Path

import pytest
from tests.support.programs import NODE, find_node_fault

HERE = Path(__file__).parent


@pytest.fixture(scope="module", autouse=True)
def _node() -> None:
    if fault := find_node_fault():
        pytest.skip(fault)


@pytest.mark.parametrize("name", sorted(path.name for path in HERE.glob("*.test.mjs")))
def test_modules(name: str) -> None:
    ran = subprocess.run([NODE, "--test", str(HERE / name)], capture_output=True, text=True)

    assert ran.returncode == 0, ran.stdout + ran.stderr
