"""What every job shares: its folder, its clock, the payload of a step, and the anchor that tells how the disk felt."""

import contextlib
import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TEXT = "x" * 100
RUNS = 64
_ANCHOR_SYNCS = 100


@dataclass(frozen=True)
class Place:
    """Where a job keeps its data, and how much of it to do."""

    folder: Path
    url: str
    steps: int

    @property
    def db(self) -> str:
        return str(self.folder / "store.db")


@dataclass
class Reading:
    """Wall clock and CPU (all threads of this process; not a database server's) of one measured block."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    extra: dict[str, float] = field(default_factory=dict)


@contextlib.contextmanager
def reading() -> Iterator[Reading]:
    found = Reading()
    wall, cpu = time.perf_counter(), time.process_time()
    yield found
    found.wall_s, found.cpu_s = time.perf_counter() - wall, time.process_time() - cpu


def payload(number: int) -> dict[str, Any]:
    """What each step of every contestant returns: about 120 bytes of JSON."""
    return {"n": number, "text": TEXT}


def anchor(folder: Path) -> float:
    """Synced appends of 200 bytes per second: the disk as it is right now."""
    path = folder / "anchor"
    with path.open("wb", buffering=0) as file:
        started = time.perf_counter()
        for _ in range(_ANCHOR_SYNCS):
            file.write(b"x" * 200)
            os.fdatasync(file.fileno())
        rate = _ANCHOR_SYNCS / (time.perf_counter() - started)
    path.unlink()
    return rate


MESSAGE = "The quick brown fox jumps over the lazy dog, and the agent tells what it has done. " * 6
"""About 500 bytes: a short message of an agent."""


def stored_bytes(place: Place) -> int:
    """What a store occupies once its write-ahead log is folded in."""
    with contextlib.closing(sqlite3.connect(place.db)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return os.path.getsize(place.db)


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=Bench", "-c", "user.email=bench@example.org", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
