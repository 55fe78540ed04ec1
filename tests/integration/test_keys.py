"""Keys stay with the process that needs them: no other process of the user reads them, no program inherits them."""

import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast import keys
from holdfast.keys import without_keys
from holdfast.workspace import Git
from holdfast.workspace.commands.spool import clean_environment

CANARY = "canary-0a61"
# Root may read everything, so both processes become an ordinary user first. That alone hides a process until it says
# otherwise; a program that this user had started would not be hidden.
_AS_USER = """
import ctypes, os, subprocess, sys
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
"""
# As the program text itself: the other user cannot always read the files of this one.
_HOLDER = f"{inspect.getsource(keys)}\n{_AS_USER}\nprint(CALL, flush=True)\ninput()"
_READER = f"{_AS_USER}\nprint(open(f'/proc/{{sys.argv[1]}}/environ').read())"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")


@contextmanager
def holding(call: str) -> Iterator[tuple[int, str]]:
    """Run a process with a key, which makes a call and says what that gave; its id and what it said."""
    environ = {"PATH": os.environ["PATH"], "SOME_API_KEY": CANARY}
    argv = [sys.executable, "-I", "-c", _HOLDER.replace("CALL", call)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, env=environ, stdin=pipe, stdout=pipe, text=True, cwd="/") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.pid, process.stdout.readline().strip()
        process.stdin.write("\n")
        process.stdin.close()


@pytest.mark.parametrize(("call", "is_hidden"), [("True", False), ("hide_environment()", True)])
def test_another_process_of_the_user_cannot_read_the_variables(call: str, is_hidden: bool) -> None:
    with holding(call) as (pid, said):
        argv = [sys.executable, "-I", "-c", _READER, str(pid)]
        read = subprocess.run(argv, capture_output=True, text=True, check=False, cwd="/", env={})

    assert said == "True"
    assert (CANARY in read.stdout) is not is_hidden, read.stderr
    assert ("PermissionError" in read.stderr) is is_hidden


def test_a_process_that_hides_its_variables_can_still_start_programs() -> None:
    with holding("(hide_environment(), subprocess.run(['/bin/sh', '-c', 'true']).returncode)") as (_pid, said):
        assert said == "(True, 0)"


def test_git_inherits_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "git").write_text(f"#!/bin/sh\n/usr/bin/env > {tmp_path}/seen\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SOME_API_KEY", CANARY)
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", f"postgresql://me:{CANARY}@localhost/x")
    monkeypatch.setenv("PGPASSWORD", CANARY)
    monkeypatch.setenv("EDITOR_OF_CHOICE", "vi")

    Git().run("--version")

    seen = (tmp_path / "seen").read_text()
    assert CANARY not in seen
    assert "EDITOR_OF_CHOICE=vi" in seen


def test_commands_inherit_a_short_list_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", CANARY)
    monkeypatch.setenv("HARMLESS", CANARY)

    assert CANARY not in str(clean_environment())


def test_what_is_named_like_a_secret_is_left_out() -> None:
    names = {"A_KEY": "1", "GITHUB_TOKEN": "2", "x_password": "3", "AWS_SECRET_2": "4", "PATH": "5", "KEYBOARD": "6"}

    assert without_keys(names) == {"PATH": "5", "KEYBOARD": "6"}
