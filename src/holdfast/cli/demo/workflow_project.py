"""The project of the demo: small, real, and with a bug that its tests show."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from holdfast.workspace.git import Author
from holdfast.workspace.user_checkout import commit_new_repository

REQUEST = "total() leaves out the last price of the list. Fix it."
_ENGINEER = Path(__file__).with_name("engineer.yaml")
_FILES = {
    "README.md": "# Till\n\nAdds up prices. `python3 -m unittest` runs the tests.\n",
    ".gitignore": "__pycache__/\n",
    "prices.py": '''"""Adding up prices in cents."""


def total(prices: list[int]) -> int:
    result = 0
    for position in range(len(prices) - 1):
        result += prices[position]
    return result
''',
    "test_prices.py": """import unittest

from prices import total


class TotalTest(unittest.TestCase):
    def test_every_price_counts(self) -> None:
        self.assertEqual(total([250, 100, 75]), 425)


if __name__ == "__main__":
    unittest.main()
""",
}


class SuiteResult(NamedTuple):
    """What the project's tests say: whether they pass, and how many there are."""

    is_passed: bool
    tests: int
    last_line: str


def make_project(folder: Path) -> None:
    """Make a git repository on `main` with one commit."""
    folder.mkdir()
    for name, text in _FILES.items():
        (folder / name).write_text(text)
    commit_new_repository(folder, Author("holdfast demo", "demo@example.invalid"), "Add up prices")


def install_engineer(config_dir: Path) -> None:
    """Put the persona that plays the script into the demo's settings; its version is above those that are shipped."""
    personas = config_dir / "personas"
    personas.mkdir(parents=True)
    shutil.copy(_ENGINEER, personas)


def see_bug(folder: Path) -> str:
    """Call the faulty function and return what it says."""
    program = "from prices import total; print(total([250, 100, 75]))"
    done = subprocess.run([sys.executable, "-B", "-c", program], cwd=folder, capture_output=True, text=True, check=True)
    return f"total([250, 100, 75]) is {done.stdout.strip()}, and should be 425"


def run_tests(folder: Path) -> SuiteResult:
    """Run the project's tests in a folder, which is left as it was."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, "-B", "-m", "unittest"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    tests = next((int(line.split()[1]) for line in lines if line.startswith("Ran ")), 0)
    return SuiteResult(done.returncode == 0 and tests > 0, tests, lines[-1] if lines else "")
