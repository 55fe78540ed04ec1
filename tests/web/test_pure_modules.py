"""The pages' modules without a DOM, by node's own test runner."""

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
@pytest.mark.parametrize("name", sorted(path.name for path in HERE.glob("*.test.mjs")))
def test_modules(name: str) -> None:
    ran = subprocess.run(["node", "--test", str(HERE / name)], capture_output=True, text=True)

    assert ran.returncode == 0, ran.stdout + ran.stderr
