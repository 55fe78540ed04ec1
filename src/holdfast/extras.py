"""What is installed beside the durable core, and what to say where it is not.

`pip install holdfast` brings flows, the stores and the light commands. What else a command or module imports belongs to
an extra; without it the answer is `ExtraMissing` with the line to type, never a bare `ModuleNotFoundError`.
"""

import contextlib
import functools
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Literal

from holdfast.errors import ExtraMissing

Extra = Literal["agents", "server"]
# The packages, as they are imported, by which an extra is recognised.
_PACKAGES: dict[str, tuple[str, ...]] = {
    "agents": (
        *("pydantic", "yaml", "jsonschema", "referencing", "re2", "sqlalchemy", "alembic", "aiosqlite"),
        *("greenlet", "prompt_toolkit"),
        *("deepagents", "langchain", "langchain_core", "langchain_openai", "langgraph"),
    ),
    "server": ("fastapi", "starlette", "uvicorn", "httptools", "procrastinate", "pygments"),
}


@functools.cache
def is_installed(extra: Extra) -> bool:
    """Return true if every package of an extra can be found; none is imported."""
    return all(_is_found(package) for package in _PACKAGES[extra]) and (extra == "agents" or is_installed("agents"))


def require_extra(extra: Extra, what: str) -> None:
    """Raise `ExtraMissing` in the name of a command or module, `what`, unless the extra is installed."""
    if not is_installed(extra):
        raise ExtraMissing(what, extra)


@contextlib.contextmanager
def name_missing_extra(what: str) -> Iterator[None]:
    """Turn a failed import of a package of an extra into `ExtraMissing`, in the name of a command or module, `what`."""
    try:
        yield
    except ExtraMissing as error:
        raise ExtraMissing(what, error.facts["extra"]) from error
    except ModuleNotFoundError as error:
        extra = _find_extra((error.name or "").partition(".")[0])
        if extra is None:
            raise
        raise ExtraMissing(what, extra) from error


def _find_extra(package: str) -> str | None:
    return next((extra for extra, packages in _PACKAGES.items() if package in packages), None)


def _is_found(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False
