"""Real processes, quickly: forked from a server that has imported everything and opened nothing.

Starting Python and importing takes ten times as long as the work of most of these processes.
"""

import functools
import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from tests.support.progress_limit import waiting_until
from tests.support.stores import ROOT


@functools.cache
def _context() -> ForkServerContext:
    # The server learns where `tests` is from its environment, when it starts.
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    context = multiprocessing.get_context("forkserver")
    names = ("operations", "full_disk", "run_owner", "store_opener")
    context.set_forkserver_preload([f"tests.support.crash.{name}" for name in names])
    return context


class Process:
    """One process that runs `work(*args, pipe)` and may send one message, its outcome, before it ends."""

    def __init__(self, work: Callable[..., None], *args: Any) -> None:
        self._outcome, sending = _context().Pipe(duplex=False)
        self._process = _context().Process(target=work, args=(*args, sending), daemon=True)
        self._process.start()
        sending.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def wait(self) -> Any:
        """Wait for its end and return its outcome, `None` if it was killed. Any other end is an error."""
        with waiting_until(f"process {self.pid} ends"):
            self._process.join()
        if self._process.exitcode == -signal.SIGKILL:
            return None
        assert self._process.exitcode == 0, f"process {self.pid} ended with {self._process.exitcode}"
        assert self._outcome.poll(), f"process {self.pid} ended without an outcome"
        return self._outcome.recv()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def is_running(self) -> bool:
        return self._process.is_alive()

    def is_stopped(self) -> bool:
        stat = Path(f"/proc/{self.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"

    def end(self) -> None:
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
