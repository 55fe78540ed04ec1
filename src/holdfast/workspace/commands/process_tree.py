"""Ends a process with all that it has started, where it leads no group: the terminal's Ctrl-C is to reach it."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path


def kill_tree(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process that has not been waited for, and its descendants; it is still to be waited for."""
    parents = _list_parents()
    tree = {process.pid}
    while more := {pid for pid, parent in parents.items() if parent in tree} - tree:
        tree |= more
    for pid in tree:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _list_parents() -> dict[int, int]:
    """Return the parent of each process that can be seen."""
    if not Path("/proc/self/stat").exists():
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, check=False).stdout
        return {int(pid): int(parent) for pid, parent in (line.split() for line in listed.splitlines())}
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            stat = (folder / "stat").read_bytes()
            # A program's name may hold anything, also blanks and brackets.
            parents[int(folder.name)] = int(stat.rpartition(b")")[2].split()[1])
    return parents
