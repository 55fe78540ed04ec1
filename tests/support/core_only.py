"""Runs a program as if only what `pip install holdfast` brings were installed: `python core_only.py CODE [ARGUMENT…]`.

Every package that the core does not require, directly or through others, cannot be imported or found.
"""

import re
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from types import ModuleType


class Hidden:
    """A finder that comes before all others and finds none of what is hidden."""

    def __init__(self, packages: set[str]) -> None:
        self.packages = packages

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] in self.packages:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def list_core() -> set[str]:
    """Return the normal names of the distributions that the core requires, itself included."""
    from packaging.requirements import Requirement

    core: set[str] = set()
    waiting: list[tuple[str, frozenset[str]]] = [("holdfast", frozenset())]
    while waiting:
        name, extras = waiting.pop()
        core.add(name)
        try:
            lines = requires(name) or []
        except PackageNotFoundError:
            continue  # of another platform
        for needed in map(Requirement, lines):
            is_relevant = needed.marker is None or any(needed.marker.evaluate({"extra": one}) for one in ("", *extras))
            if is_relevant and (found := normal(needed.name)) not in core:
                waiting.append((found, frozenset(needed.extras)))
    return core


def list_hidden() -> set[str]:
    core = list_core()
    return {
        package
        for package, owners in packages_distributions().items()
        if not any(normal(owner) in core for owner in owners)
    }


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    hidden = list_hidden()
    for name in [name for name in sys.modules if name.partition(".")[0] in hidden]:
        del sys.modules[name]
    sys.meta_path.insert(0, Hidden(hidden))
    code, *sys.argv[1:] = sys.argv[1:]
    exec(compile(code, "<core only>", "exec"), {"__name__": "__main__"})
