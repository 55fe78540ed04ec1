"""A command of holdfast in a process of its own that is killed at one function: before it, or right after it."""

import functools
import importlib
import inspect
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.forked_command import start_warm

_POINT = "HOLDFAST_TEST_DIES"


def run_dying(arguments: list[str], point: str, env: Mapping[str, str], log: Path) -> int:
    """Run a command until it dies at `before module:name` or `after module:name`; returns how it ended."""
    log.touch()
    streams = (os.devnull, str(log), str(log))
    return start_warm(arguments, {**env, _POINT: point}, None, streams, f"{__name__}:main").wait()


def main() -> None:
    from holdfast.cli.app import main as command

    moment, _, place = os.environ[_POINT].partition(" ")
    module, _, path = place.partition(":")
    owner: Any = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    setattr(owner, name, _deadly(getattr(owner, name), is_before=moment == "before"))
    command()


def _deadly(real: Any, *, is_before: bool) -> Any:
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if inspect.iscoroutinefunction(real):

        @functools.wraps(real)
        async def called_later(*args: Any, **kw: Any) -> Any:
            if is_before:
                die()
            await real(*args, **kw)
            die()

        return called_later

    @functools.wraps(real)
    def called(*args: Any, **kw: Any) -> Any:
        if is_before:
            die()
        real(*args, **kw)
        die()

    return called
