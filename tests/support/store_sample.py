"""Which tests that run on several stores run on which of them: with a seed, as in `make test`, each on one.

`make torture`, and a run without a seed, as in `make check`, have every store.
"""

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.support.crash.points import IS_TORTURE
from tests.support.flow_stores import KINDS

_STORE = re.compile(rf"(?<![a-z])(?:{'|'.join(KINDS)})(?![a-z])")


def leave_out_other_stores(config: pytest.Config, items: list[pytest.Item], folder: Path) -> None:
    """Deselect, of the tests below a folder, those on the stores that the seed has not chosen."""
    seed = os.environ.get("HOLDFAST_SEED")
    if IS_TORTURE or not seed:
        return
    names = find_others((item.nodeid for item in items if item.path.is_relative_to(folder)), seed)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in names])
    items[:] = [item for item in items if item.nodeid not in names]


def find_others(names: Iterable[str], seed: str) -> set[str]:
    """Of the names of tests that differ in the store alone, find all but one."""
    same = defaultdict(list)
    for name in names:
        test, bracket, parameters = name.partition("[")
        if _STORE.search(parameters):
            same[test + bracket + _STORE.sub("*", parameters, count=1)].append(name)
    chosen = {sorted(stores)[_number(f"{seed} {test}") % len(stores)] for test, stores in same.items()}
    return {name for stores in same.values() for name in stores} - chosen


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])
