"""How tests are ended and skipped here: a pytest of its own with the settings of this one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STANDS_STILL = """
import asyncio, subprocess, threading
from tests.support import progress_limit as progress

progress.watch._limit_s = 2

async def test_a_task():
    await asyncio.Event().wait()

def test_a_process():
    subprocess.run(["sleep", "1000"])

def test_something_that_never_comes():
    progress.wait_until(lambda: False, "the cows come home")
"""
WORKS = """
import subprocess, threading, time
from tests.support import progress_limit as progress

progress.watch._limit_s = 1

def work():
    end = time.monotonic() + 4
    while time.monotonic() < end:
        pass

def test_a_thread():
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

def test_a_process_of_a_process():
    subprocess.run(["sh", "-c", "timeout 4 sh -c 'while :; do :; done'; true"])

def test_things_that_come():
    for _ in range(4):
        threading.Timer(0.8, (came := threading.Event()).set).start()
        progress.wait_until(came.is_set)
"""
LACKS_A_TOOL = """
import pytest

def test_that_needs_it():
    pytest.skip("no hammer is installed")
"""


def run_pytest(folder: Path, code: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    (folder / "test_it.py").write_text(code)
    settings = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-p", "tests.conftest", "-n", "0"]
    command = [sys.executable, "-m", "pytest", "-q", *settings, "-p", "no:langsmith_plugin", str(folder / "test_it.py")]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True)


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="processes are looked at through /proc")
def test_a_test_that_stands_still_fails_and_says_where(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, STANDS_STILL)

    assert "3 failed" in ran.stdout, ran.stdout + ran.stderr
    assert ran.stdout.count("Failed: no progress for 2 s") >= 3
    assert "await asyncio.Event().wait()" in ran.stdout.partition("Captured stderr")[2]
    assert "it waited until the cows come home" in ran.stdout


def test_a_test_that_works_may_take_long(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, WORKS)

    assert (ran.returncode, "3 passed" in ran.stdout) == (0, True), ran.stdout + ran.stderr


@pytest.mark.parametrize(("ci", "code", "summary"), [("", 0, "1 skipped"), ("true", 1, "1 failed")])
def test_a_missing_tool_skips_tests_and_in_ci_fails_them(tmp_path: Path, ci: str, code: int, summary: str) -> None:
    ran = run_pytest(tmp_path, LACKS_A_TOOL, CI=ci)

    assert (ran.returncode, summary in ran.stdout) == (code, True), ran.stdout + ran.stderr
    assert "no hammer is installed" in ran.stdout
