"""What all tests share: the slowest suites run in part by default, whole with `make test all=1` and `make torture`."""

import os
from collections import Counter

import pytest

IS_WHOLE = bool(os.environ.get("ALL_TESTS") or os.environ.get("HOLDFAST_TORTURE"))
# How many tests of a file run by default: real terminals, browsers and fleets of clients take minutes, and `make test`
# is to stay one's first reflex.
FIRST_ONLY = {
    "tests/acceptance/cli/test_repl.py": 1,
    "tests/browser/test_budget.py": 1,
    "tests/browser/test_catalog.py": 1,
    "tests/browser/test_catalog_access.py": 0,
    "tests/browser/test_deciding.py": 4,
    "tests/browser/test_everyone.py": 2,
    "tests/browser/test_health.py": 0,
    "tests/browser/test_login.py": 1,
    "tests/browser/test_new_run.py": 1,
    "tests/browser/test_scale.py": 0,
    "tests/browser/test_settings.py": 1,
    "tests/browser/test_watching.py": 4,
    "tests/integration/api/test_torture.py": 0,
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if IS_WHOLE or any("::" in argument or argument.endswith(".py") for argument in config.args):
        return  # asked for by name
    seen: Counter[str] = Counter()
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        path = item.path.relative_to(config.rootpath).as_posix()
        seen[path] += 1
        (left if seen[path] > FIRST_ONLY.get(path, len(items)) else kept).append(item)
    items[:] = kept
    if left:
        config.hook.pytest_deselected(items=left)
