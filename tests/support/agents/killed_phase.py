"""A process that plays a phase, dies where it is told to, and tells how a later one ended it."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


class Player:
    """One order a line, one answer a line."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def play(self, folder: Path, *dies_at: int, **order: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"folder": str(folder), "dies_at": dies_at, **order}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


@contextlib.contextmanager
def starting_player(module: str) -> Iterator[Player]:
    command = [sys.executable, "-m", f"tests.support.agents.{module}"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as process:
        yield Player(process)
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
