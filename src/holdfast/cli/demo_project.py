"""The project of the demo: small, real, and with a fault that can be seen."""

import subprocess
import sys
from pathlib import Path

WISH = "total() forgets the last price of the list. Mend it."
_FILES = {
    "README.md": "# Till\n\nAdds up prices. `python test_prices.py` runs the tests.\n",
    "prices.py": '''"""Adding up prices in cents."""


def total(prices: list[int]) -> int:
    result = 0
    for position in range(len(prices) - 1):
        result += prices[position]
    return result
''',
    "test_prices.py": """from prices import total


def test_every_price_counts() -> None:
    assert total([250, 100, 75]) == 425


if __name__ == "__main__":
    test_every_price_counts()
""",
}


def make_project(folder: Path) -> None:
    """A git repository on `main` with one commit."""
    folder.mkdir()
    for name, text in _FILES.items():
        (folder / name).write_text(text)
    _git(folder, "init", "--quiet", "--initial-branch=main")
    _git(folder, "config", "user.name", "holdfast demo")
    _git(folder, "config", "user.email", "demo@example.invalid")
    _git(folder, "add", "--all")
    _git(folder, "commit", "--quiet", "--message", "Add up prices")


def see_fault(folder: Path) -> str:
    """What the faulty function says, by calling it."""
    program = "from prices import total; print(total([250, 100, 75]))"
    done = subprocess.run([sys.executable, "-B", "-c", program], cwd=folder, capture_output=True, text=True, check=True)
    return f"total([250, 100, 75]) is {done.stdout.strip()}, and should be 425"


def read_status(folder: Path) -> str:
    """The commit that is checked out and what differs from it: the same text means that nothing was touched."""
    return _git(folder, "rev-parse", "HEAD") + _git(folder, "status", "--porcelain")


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout
