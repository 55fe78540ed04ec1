"""Engines in processes of their own, quickly: forked from one that has imported everything and opened nothing.

The agent framework takes seconds to import. A job is the name of a function of this module and its arguments; it ends
with `{"result": …}`, or with `{"code": …}` of the error it ended with, or without a word if it is killed.
"""

import asyncio
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

from tests.support.progress_limit import wait_until
from tests.support.warm_process import warm_up

ROOT = Path(__file__).parents[2]


class Zygote:
    """The process that others are forked from; a light one knows no agents."""

    def __init__(self, folder: Path, *, is_light: bool = False) -> None:
        self._folder = folder
        self._count = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.engine_processes", *(["light"] if is_light else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def start(self, world: Any, name: str, *args: Any) -> "Child":
        self._count += 1
        out = self._folder / f"outcome-{self._count}"
        job = {"url": world.url, "folder": str(world.folder), "name": name, "args": args, "out": str(out)}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return Child(int(self._process.stdout.readline()), out)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class Child:
    def __init__(self, pid: int, out: Path) -> None:
        self.pid = pid
        self._out = out

    def wait(self) -> dict[str, Any] | None:
        """Its outcome, or `None` if it was killed."""
        wait_until(lambda: not self.is_alive(), f"process {self.pid} ends")
        outcome: dict[str, Any] | None = json.loads(self._out.read_text()) if self._out.exists() else None
        assert outcome is None or "traceback" not in outcome, (outcome or {})["traceback"]
        return outcome

    def wait_for(self, path: Path) -> None:
        """Wait until it has made a file."""
        wait_until(lambda: path.exists() or not self.is_alive(), f"process {self.pid} makes {path.name}")
        assert path.exists(), self.wait()

    def kill(self) -> None:
        """End it in the middle of whatever it does; on return it is gone."""
        os.kill(self.pid, signal.SIGKILL)
        wait_until(lambda: not self.is_alive(), f"process {self.pid} dies")

    def is_alive(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True


# -- in the other process ---------------------------------------------------------------------------------------------


def _import_all(*, is_light: bool) -> None:
    heavy = ("holdfast.agents.build", "holdfast.agents.simulated.model", "holdfast.engine.phase.middleware")
    jobs = ("tests.support.crash.workflow_child", "tests.support.crash.conversation_child")
    for name in ("tests.support.engine_jobs", *(() if is_light else (*heavy, *jobs))):
        importlib.import_module(name)
    if not is_light:
        warm_up()


def _serve() -> None:
    _import_all(is_light=sys.argv[1:] == ["light"])
    gc.freeze()  # no child need look for garbage in what was imported
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody has to bury the children
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _work(job)
        print(pid, flush=True)


def _work(job: dict[str, Any]) -> None:
    """Do a job and end the process."""
    from tests.support.engine_jobs import find_job

    from holdfast.errors import HoldfastError

    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    outcome: dict[str, Any]
    try:
        outcome = {"result": asyncio.run(find_job(job["name"])(job["url"], Path(job["folder"]), *job["args"]))}
    except HoldfastError as error:
        outcome = {"code": error.code, "message": error.message}
    except BaseException:
        outcome = {"traceback": traceback.format_exc()}
    part = Path(job["out"] + ".part")
    part.write_text(json.dumps(outcome, default=str))
    part.rename(job["out"])
    os._exit(0)


if __name__ == "__main__":
    _serve()
