"""The types of steps, lanes and flows, as `mypy --strict` and pyright see them: right calls pass, wrong ones do not."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mypy import api

CASES = Path(__file__).parent / "cases"
ROOT = Path(__file__).parents[2]


def _expected(case: Path) -> list[int]:
    lines = case.read_text().splitlines()
    return [number for number, line in enumerate(lines, 1) if line.endswith("# error")]


def _mypy(*cases: Path) -> dict[Path, list[int]]:
    out, err, _ = api.run(["--strict", "--config-file", str(ROOT / "pyproject.toml"), *map(str, cases)])
    assert not err, err
    found: dict[Path, set[int]] = {case: set() for case in cases}
    for name, line in re.findall(r"^(.+?):(\d+): error:", out, re.MULTILINE):
        found[(Path.cwd() / name).resolve()].add(int(line))
    return {case: sorted(lines) for case, lines in found.items()}


def _pyright(*cases: Path) -> dict[Path, list[int]]:
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--level", "error", *map(str, cases)]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout)
    found: dict[Path, set[int]] = {case: set() for case in cases}
    for problem in report["generalDiagnostics"]:
        if problem.get("rule") in _OF_TYPES:
            found[Path(problem["file"])].add(problem["range"]["start"]["line"] + 1)
    return {case: sorted(lines) for case, lines in found.items()}


_OF_TYPES = (
    "reportCallIssue",
    "reportArgumentType",
    "reportAssignmentType",
    "reportReturnType",
    "reportAssertTypeFailure",
)


@pytest.mark.parametrize("check", [_mypy, _pyright])
def test_right_calls_pass_and_wrong_ones_do_not(check: object) -> None:
    right, wrong = CASES / "right_calls.py", CASES / "wrong_calls.py"

    found = check(right, wrong)  # type: ignore[operator]

    assert found[right] == []
    assert found[wrong] == _expected(wrong)


def test_the_example_of_the_readme_passes(tmp_path: Path) -> None:
    example = re.search(r"```python\n(# release\.py\n.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert example
    case = tmp_path / "release.py"
    case.write_text(example[1])

    assert _mypy(case) == {case: []}
