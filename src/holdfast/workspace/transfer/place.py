"""Which place this is: a data directory, wherever it is mounted. A run's worktree is in one place at a time.

The id lies in the directory itself and goes with it. A copy of a data directory would be taken for the same place, so
the id also names the machine that made it; `HOLDFAST_TEST_MACHINE` stands for that name in tests.
"""

import os
import socket
import uuid
from pathlib import Path

from holdfast.workspace.files import write_whole

_FILE = "place"


def read_place(data_dir: Path) -> str:
    """Return the id of the place, made on the first call. May be called by several processes at once."""
    path = data_dir / _FILE
    try:
        return path.read_text().strip() or _make(path)
    except FileNotFoundError:
        return _make(path)


def _make(path: Path) -> str:
    machine = os.environ.get("HOLDFAST_TEST_MACHINE") or socket.gethostname()
    name = "".join(char if char.isalnum() or char in "-." else "-" for char in machine)[:60]
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{_FILE}.{uuid.uuid4().hex}")
    write_whole(part, f"{name}-{uuid.uuid4().hex[:12]}\n")
    try:
        # crash: a file of its own name is left, which nobody reads.
        os.link(part, path)  # the first one wins, whole
    except FileExistsError:
        if not path.read_text().strip():
            part.replace(path)
    part.unlink(missing_ok=True)
    return path.read_text().strip()


def machine_of(place: str) -> str:
    """Return the name of the machine that a place was made on, for a person to read."""
    return place.rpartition("-")[0] or place
