"""Imports the agent framework ahead of its first use: more than a second of work, beside other work that waits.

Rule: what is named here is only quicker. Whoever uses a module still imports it.
"""

import contextlib
import importlib
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec, module_from_spec
from typing import Any

# Everything heavy that an agent's turn imports, whoever its persona is. The framework's own parts come first, one by
# one: between two of them the import can be given up.
_PARTS = (
    *("langsmith.run_trees", "langchain_core.runnables.base", "langchain_core.language_models.chat_models"),
    *("langgraph.pregel", "langgraph.prebuilt.tool_node", "langchain.agents.middleware", "deepagents.backends"),
)
_MODULES = (
    *(
        "deepagents",
        "holdfast.agents.calls.middleware",
        "holdfast.agents.calls.retries",
        "holdfast.agents.calls.summaries",
    ),
    *("holdfast.agents.tools.execute", "holdfast.agents.simulated.model"),
)
# A hundred models of a tracing service's API, which the framework imports for the sake of one name.
_UNUSED_PACKAGE = "langsmith.types"


@contextlib.contextmanager
def importing_framework() -> Iterator[None]:
    """Import the framework in a thread, in a process of our own; at the end of the block it is given up.

    The thread is no daemon: one that is stopped inside the framework's native code takes the process down with it.
    """
    is_over = threading.Event()
    thread = threading.Thread(target=_import_until, args=(is_over,), name="holdfast-framework-import")
    thread.start()
    try:
        yield
    finally:
        is_over.set()


def import_framework() -> None:
    """Import what an agent's turn needs; at once where that is done."""
    for name in _MODULES:
        importlib.import_module(name)


def is_framework_imported() -> bool:
    return all(name in sys.modules for name in _MODULES)


def _import_until(is_over: threading.Event) -> None:
    defer_package(_UNUSED_PACKAGE)
    for name in (*_PARTS, *_MODULES):
        if is_over.is_set():
            return
        with contextlib.suppress(Exception):  # it fails again, and is reported, where it is used
            importlib.import_module(name)


def defer_package(name: str) -> None:
    """Let a package inside another run its own code when the first of its names is used, and no earlier.

    Nothing changes where it is imported already or cannot be found.
    """
    try:
        spec = None if name in sys.modules else find_spec(name)
    except ImportError:
        spec = None
    if spec is None or spec.loader is None:
        return
    package, loader = module_from_spec(spec), spec.loader

    def load(attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        vars(package).pop("__getattr__", None)
        loader.exec_module(package)
        return getattr(package, attribute)

    vars(package)["__getattr__"] = load
    sys.modules[name] = package
    parent, _, own_name = name.rpartition(".")
    setattr(sys.modules[parent], own_name, package)
