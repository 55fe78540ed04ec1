"""Watches a process whose output somebody reads: it ends in time, and the end of what it says of errors is kept.

Rule: the process leads a group of its own. What it has started ends with it, so that nobody waits for the end of a pipe
that another process still has.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time

_TAIL_BYTES = 8192
_END_S = 5.0  # a process that has left the group can keep the pipe open


class ProcessWatch:
    """The watch of one process, in a thread, until `end`."""

    def __init__(self, process: "subprocess.Popen[bytes]", timeout_s: float) -> None:
        self.is_late = False
        """Whether the process was ended because its time was over."""
        self.process = process
        self._deadline = time.monotonic() + timeout_s
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._tail = b""
        self._thread = threading.Thread(target=self._watch, name="process-watch", daemon=True)
        self._thread.start()

    def read_errors(self) -> str:
        """Return the last of what a process that has ended said on its standard error."""
        self._stop()
        return self._tail.decode(errors="replace")

    def end(self) -> None:
        """End the process with all that it has started. Afterwards it has been waited for."""
        if self.process.returncode is None:  # until it is waited for, nobody else gets its number
            self._kill()
        self.process.wait()
        self._stop()

    def _stop(self) -> None:
        with self._lock:
            self._is_over.set()
        self._thread.join(_END_S)

    def _watch(self) -> None:
        self._read_tail()
        if self._is_over.wait(max(self._deadline - time.monotonic(), 0)):
            return
        with self._lock:
            if not self._is_over.is_set():
                self.is_late = True
                self._kill()

    def _read_tail(self) -> None:
        errors = self.process.stderr
        assert errors is not None
        with errors, selectors.DefaultSelector() as selector:
            selector.register(errors, selectors.EVENT_READ)
            while (left_s := self._deadline - time.monotonic()) > 0:
                if not selector.select(left_s):
                    return
                if not (data := os.read(errors.fileno(), _TAIL_BYTES)):
                    return
                self._tail = (self._tail + data)[-_TAIL_BYTES:]

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS says the latter of a group that is over
            os.killpg(self.process.pid, signal.SIGKILL)
