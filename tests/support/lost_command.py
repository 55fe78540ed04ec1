"""A command of an agent that is lost: its process, its runner and `holdfast` itself are killed in the middle of it."""

import json
import os
import signal
from contextlib import AbstractContextManager
from pathlib import Path

from tests.support.progress_limit import wait_until

CHARGE = "echo charged >> charges.txt; [ -e begun ] || { : > begun; sleep 432; }"
"""Charges each time it is run, and ends by itself only the second time."""


def lose_the_charge(killed: AbstractContextManager[object], data_dir: Path, *, runs: int = 1) -> None:
    """Wait until the command of every run has charged, then kill everything that could tell."""
    with killed:  # at the end
        wait_until(lambda: len([*data_dir.glob("worktrees/*/begun")]) == runs, "the command has begun")
    started = [*data_dir.glob("spool/*/pid.json")]
    assert len(started) == runs
    for pid in [json.loads(path.read_text())[who][0] for path in started for who in ("runner", "leader")]:
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda pid=pid: not _is_running(pid), f"process {pid} is gone")  # type: ignore[misc]


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def count_charges(data_dir: Path, run_id: str = "*") -> int:
    (written,) = data_dir.glob(f"worktrees/{run_id}/charges.txt")
    return written.read_text().count("charged")
