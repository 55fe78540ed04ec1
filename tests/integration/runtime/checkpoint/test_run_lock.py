"""The lock of a run: a holder that was killed a moment ago is waited for, a living one is not."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.progress_limit import wait_until

from holdfast.errors import RunBusy
from holdfast.runtime.checkpoint import process_owner, run_lock
from holdfast.runtime.checkpoint.run_lock import lock_run

HOLD = """
import sys
from holdfast.runtime.checkpoint.run_lock import lock_run
lock = lock_run(sys.argv[1], "r")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_the_lock_of_a_process_that_was_killed_a_moment_ago_is_taken(
    holder: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    def kill_and_look(pid: int) -> bool:
        """Stand for a busy machine: the signal is on its way, and the process still there."""
        looks.append(pid)
        os.kill(pid, signal.SIGKILL)
        return True

    monkeypatch.setattr(process_owner, "is_ending", kill_and_look)

    lock = lock_run(tmp_path, "r")

    assert (lock.was_left, set(looks)) == (True, {holder.pid})
    lock.release()


def test_a_living_holder_is_not_waited_for(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    with pytest.raises(RunBusy):
        lock_run(tmp_path, "r")
    assert not process_owner.is_ending(holder.pid)


def test_a_holder_that_does_not_end_though_it_was_killed_is_not_waited_for_for_ever(
    holder: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_owner, "is_ending", lambda _pid: True)
    monkeypatch.setattr(run_lock, "_MOST_ENDING_S", 0.02)

    with pytest.raises(RunBusy):
        lock_run(tmp_path, "r")


def test_a_process_is_ending_from_its_kill_on_and_its_claims_are_dead(holder: subprocess.Popen[str]) -> None:
    assert not process_owner.is_ending(holder.pid)

    # Stopped, it takes up the signal only when it is scheduled again; on a busy machine that is a while.
    os.kill(holder.pid, signal.SIGSTOP)
    assert not process_owner.is_ending(holder.pid)
    os.kill(holder.pid, signal.SIGKILL)

    wait_until(lambda: process_owner.is_ending(holder.pid))
    assert not process_owner.is_ending(2**22)
