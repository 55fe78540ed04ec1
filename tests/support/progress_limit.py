"""The one time limit of the tests: a test fails when it and its processes have done nothing for `LIMIT_S` seconds.

A wall clock measures how busy the machine is. What is counted here are the seconds in which no thread of the test, and
none of any process it started, ran, waited for a processor or waited for a disk; each thing that was waited for and
came sets the count back. So tests need no limits of their own: they wait with `wait_until` or `until`, or simply for
the thing itself. A test that works for ever is ended by pytest-timeout, after a time that none needs on any machine.
"""

import asyncio
import contextlib
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

LIMIT_S = 120.0
_LOOK_S = 1.0
_IGNORED_S = 30.0  # so long after the signal, a main thread that has not raised is inside C code that does not return
_SIGNAL = signal.SIGUSR2  # pytest-timeout has SIGALRM

Description = str | Callable[[], str]


def wait_until(condition: Callable[[], object], what: Description = "") -> None:
    """Wait until something holds. `what`, or what it returns, is part of the message if it never does."""
    with waiting_until(what):
        while not condition():
            time.sleep(0.005)


async def until(condition: Callable[[], object], what: Description = "") -> None:
    """Wait until something holds, and let other tasks work meanwhile."""
    with waiting_until(what):
        while not condition():
            await asyncio.sleep(0.005)


@contextlib.contextmanager
def waiting_until(what: Description) -> Iterator[None]:
    """Say what the block waits for; once it is over, that was progress."""
    watch.waits.append(what)
    yield
    # Tasks end their waits in any order. After an error the description stays, until the test is over.
    if what in watch.waits:
        watch.waits.remove(what)
    watch.idle_s = 0.0


class Watch:
    """Counts in a thread how long a test does nothing, and fails it in the main thread when that is too long."""

    def __init__(self, limit_s: float, look_s: float = _LOOK_S) -> None:
        self.idle_s = 0.0
        self.waits: list[Description] = []
        self._limit_s = limit_s
        self._look_s = look_s
        self._is_armed = False
        self._is_started = False

    @contextlib.contextmanager
    def armed(self) -> Iterator[None]:
        """Watch what happens in the block. Where processes cannot be looked at, nothing is watched."""
        if not self._is_started and Path(f"/proc/self/task/{os.getpid()}/children").exists():
            self._is_started = True
            signal.signal(_SIGNAL, self._fail)
            threading.Thread(target=self._look_on, name="progress", daemon=True).start()
        self.idle_s, self._is_armed = 0.0, True
        try:
            yield
        finally:
            self._is_armed = False
            self.waits.clear()

    def _look_on(self) -> None:
        me = threading.get_native_id()
        while True:
            time.sleep(self._look_s)
            if not self._is_armed or is_working(os.getpid(), but_thread=me):
                continue
            self.idle_s += self._look_s
            if self.idle_s > self._limit_s + _IGNORED_S:
                faulthandler.dump_traceback(sys.__stderr__)
                os._exit(70)
            elif self.idle_s > self._limit_s:
                signal.pthread_kill(threading.main_thread().ident or 0, _SIGNAL)

    def _fail(self, *_: object) -> None:
        __tracebackhide__ = True
        import pytest
        from pytest_timeout import dump_stacks, is_debugging

        if not self._is_armed or is_debugging():
            self.idle_s = 0.0
            return
        self._is_armed = False
        dump_stacks(_StandardError())
        for task in asyncio.all_tasks(loop) if (loop := asyncio._get_running_loop()) else ():
            task.print_stack(file=sys.stderr)
        waits = [what if isinstance(what, str) else what() for what in self.waits]
        lines = [f"no progress for {self._limit_s:g} s", *(f"it waited until {what}" for what in waits if what)]
        pytest.fail("\n".join(lines))


class _StandardError:
    """Where the stacks of the other threads go: shown with the test that failed."""

    def sep(self, mark: str, title: str) -> None:
        print(f"{mark * 3} {title}", file=sys.stderr)

    def write(self, text: str) -> None:
        print(text, file=sys.stderr)


def is_working(pid: int, *, but_thread: int = 0) -> bool:
    """Whether a thread of the process or of its descendants runs, or would if a processor or the disk let it."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:  # it has ended
        return False
    return any(_is_thread_working(thread) for thread in threads if thread.name != str(but_thread))


def _is_thread_working(thread: Path) -> bool:
    with contextlib.suppress(OSError):
        state = (thread / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        return state in "RD" or any(is_working(int(child)) for child in (thread / "children").read_text().split())
    return False


watch = Watch(LIMIT_S)
