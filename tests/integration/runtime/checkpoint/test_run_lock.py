"""The lock of a run: a holder that was killed a moment ago is waited for, a living one is not."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support.progress_limit import wait_until

from holdfast.errors import RunBusy
from holdfast.runtime.checkpoint import process_owner, run_lock
from holdfast.runtime.checkpoint.base import OwnerEnding
from holdfast.runtime.checkpoint.run_lock import Patience, lock_run

HOLD = """
import sys
from holdfast.runtime.checkpoint.run_lock import lock_run
locks = [lock_run(sys.argv[1], run_id) for run_id in ("r", "s", "t")]
print("held", flush=True)
sys.stdin.read()
"""
CLAIM_ALL = """
import sys, time
from holdfast.errors import RunBusy
from holdfast.runtime.checkpoint import run_lock

naps = []
nap = time.sleep
time.sleep = lambda seconds: (naps.append(seconds), nap(seconds))
patience = run_lock.Patience()
for run_id in ("r", "s", "t"):
    try:
        run_lock.lock_run(sys.argv[1], run_id, patience=patience)
    except RunBusy:
        print("busy")
print(len(naps))
"""
NEW_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc")
MOST_NAPS = 5  # of 5 ms each, in 20 ms


def to_clock(sleep: Callable[[float], None]) -> SimpleNamespace:
    return SimpleNamespace(monotonic=time.monotonic, sleep=sleep)


@cache
def can_make_namespace() -> bool:
    try:
        return subprocess.run([*NEW_NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


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


def test_holders_that_the_system_does_not_list_are_waited_for_a_few_milliseconds_in_all(
    holder: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    naps: list[float] = []
    monkeypatch.setattr(run_lock, "_read_holders", dict)
    monkeypatch.setattr(run_lock, "time", to_clock(lambda seconds: naps.append(seconds) or time.sleep(seconds)))
    patience = Patience()

    for run_id in ("r", "s", "t"):
        with pytest.raises(RunBusy):
            lock_run(tmp_path, run_id, patience=patience)

    assert 0 < len(naps) <= MOST_NAPS


def test_a_living_holder_in_another_container_is_not_waited_for(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    if not can_make_namespace():
        pytest.skip("needs the right to make a pid namespace")
    command = [*NEW_NAMESPACE, sys.executable, "-c", CLAIM_ALL, str(tmp_path)]

    *answers, naps = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    assert answers == ["busy"] * 3
    assert int(naps) <= MOST_NAPS


@pytest.mark.parametrize("is_listed", [True, False])
def test_nothing_is_waited_for_without_time_to_wait(
    holder: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_listed: bool
) -> None:
    monkeypatch.setattr(run_lock, "_read_holders", run_lock._read_holders if is_listed else dict)
    monkeypatch.setattr(process_owner, "is_ending", lambda _pid: True)
    monkeypatch.setattr(run_lock, "time", to_clock(lambda _seconds: pytest.fail("it waits")))

    with pytest.raises(OwnerEnding):
        lock_run(tmp_path, "r", patience=Patience(0))


def test_a_lock_that_was_let_go_while_it_was_waited_for_was_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = lock_run(tmp_path, "mine")

    def let_go(_pid: int) -> bool:
        mine.release()
        return True

    monkeypatch.setattr(process_owner, "is_ending", let_go)

    assert not lock_run(tmp_path, "mine").was_left


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
