"""A command of an agent that is lost: its process, its runner and `holdfast` itself are killed in the middle of it."""

import json
import os
import signal
from pathlib import Path

from tests.acceptance.cli.terminal import Terminal
from tests.engine_processes import wait_until

CHARGE = "echo charged >> charges.txt; [ -e begun ] || { : > begun; sleep 432; }"
"""Charges each time it is run, and ends by itself only the second time."""


def lose_the_charge(terminal: Terminal, data_dir: Path) -> None:
    """Wait until the command has charged, then kill everything that could tell."""
    with terminal:  # which is killed at the end
        wait_until(lambda: any(data_dir.glob("worktrees/*/begun")), "the command has begun")
    (started,) = data_dir.glob("spool/*/pid.json")
    for who in ("runner", "leader"):
        pid = json.loads(started.read_text())[who][0]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda pid=pid: not _is_running(pid), f"process {pid} is gone")  # type: ignore[misc]


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def count_charges(data_dir: Path) -> int:
    (written,) = data_dir.glob("worktrees/*/charges.txt")
    return written.read_text().count("charged")
