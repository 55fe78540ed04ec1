"""What the steps of all programs do: write a line into a log outside of every system, and die when it is time.

The log tells what really happened, whatever a system remembers: what a line is there twice for was done twice.
"""

import os
import signal
from pathlib import Path
from typing import Any

SEQUENCE = 50
WIDTH = 40
FLAKY = 5
BACK_OFF_S = 0.05
SLEEP_S = 1.0
CHILDREN, CHILD_STEPS = 5, 4
CHECKS = 8
CHECK_EVERY_S = 0.1
WAIT_S = 60

_log = Path("effects")
_kill_at = ""


class Refused(Exception):
    """A business refusal: trying again is of no use."""


def open_log(folder: Path) -> None:
    global _log
    _log = folder / "effects"
    _log.touch()


def kill_at(run: str, name: str) -> None:
    """Let the process die as by kill -9 right after this effect, before any system can know of it."""
    global _kill_at
    _kill_at = f"{run} {name}"


def read(run: str) -> list[str]:
    """The effects of a run, in the order in which they happened."""
    return [line.removeprefix(f"{run} ") for line in _log.read_text().splitlines() if line.startswith(f"{run} ")]


def act(run: str, name: str) -> dict[str, Any]:
    """The effect of a step, and its result."""
    with _log.open("a") as file:
        file.write(f"{run} {name}\n")
    if f"{run} {name}" == _kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"name": name, "text": "x" * 100}


def flaky(run: str, name: str) -> dict[str, Any]:
    """Fail the first time."""
    if f"try {name}" not in read(run):
        act(run, f"try {name}")
        raise ConnectionError(f"{name} is not there")
    return act(run, name)


def refuse(run: str, name: str) -> dict[str, Any]:
    act(run, name)
    raise Refused(name)


def is_new_code() -> bool:
    """The second process of `change` has the code of the next release."""
    return os.environ.get("PROGRAMS_RELEASE") == "2"
