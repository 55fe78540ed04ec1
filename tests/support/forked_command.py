"""`holdfast` in processes of their own, quickly: forked from one that has imported everything and opened nothing.

The agent framework takes seconds to import, and these tests start the command many times. What is forked is a process
like any other: it has its own terminal or files, its own environment, and can be killed.
"""

import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.progress_limit import wait_until
from tests.support.warm_process import warm_up

_ROOT = Path(__file__).parents[2]
_COMMAND = "holdfast.cli.app:main"
_MODULES = (
    *("cli.app", "cli.repl.loop", "cli.commands.run", "cli.commands.resume", "cli.commands.serve", "cli.log_output"),
    *("cli.terminal.live_tree", "cli.terminal.progress", "engine.phase.middleware", "engine.conversation.messages"),
    *("agents.build", "agents.simulated.model", "agents.models.openai", "persistence.schema", "api.app", "api.serve"),
    *("runtime.checkpoint.sqlite.store", "runtime.checkpoint.postgres.store"),
    *("agents.calls.inbox", "agents.calls.summaries", "agents.tools.execute", "agents.tools.files", "engine.audit"),
    *("cli.repl.home", "cli.repl.single_question", "cli.commands.db", "fleet.worker"),
)


class WarmProcess:
    """What `subprocess.Popen` is to others."""

    def __init__(self, server: "_Server", pid: int) -> None:
        self._server = server
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._server.ask(wait=self.pid)
        return self.returncode

    def wait(self) -> int:
        wait_until(lambda: self.poll() is not None, f"process {self.pid} ends")
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def start_warm(
    arguments: Sequence[str],
    env: Mapping[str, str],
    cwd: Path | None,
    streams: tuple[str, str, str],
    entry: str = _COMMAND,
) -> WarmProcess:
    """Start `holdfast`, or the function at `entry`; the streams are paths, all three the same one for a terminal."""
    server = _server()
    order = {"start": list(arguments), "entry": entry, "env": dict(env), "cwd": str(cwd or Path.cwd())}
    return WarmProcess(server, server.ask(**order, streams=streams))


class Speaking:
    """A warm process that is read line by line, as a server that says where it listens."""

    def __init__(self, arguments: Sequence[str], env: Mapping[str, str], log: Path, entry: str = _COMMAND) -> None:
        with tempfile.TemporaryDirectory(prefix="hf-out-") as folder:
            out = f"{folder}/out"
            os.mkfifo(out)
            reader = os.open(out, os.O_RDONLY | os.O_NONBLOCK)  # before there is a writer, who would wait for one
            log.touch()
            self.process = start_warm(arguments, env, None, (os.devnull, out, str(log)), entry)
        os.set_blocking(reader, True)
        self._out = open(reader)  # noqa: SIM115 - closed by `end`

    def read_line(self) -> str:
        return self._out.readline()

    def end(self, number: int) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait()
        self._out.close()
        return code


class SpeakingProgram:
    """The same in a process that was not forked: what is in its environment counts from its first moment on."""

    def __init__(self, arguments: Sequence[str], env: Mapping[str, str], log: Path, entry: str = _COMMAND) -> None:
        module, _, name = entry.partition(":")
        program = f"from {module} import {name}; {name}()"
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", program, *arguments],
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=_ROOT,
                start_new_session=True,
            )

    def read_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def end(self, number: int) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


class _Server:
    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.support.forked_command"]
        pipe = subprocess.PIPE
        # A session of its own: Ctrl-C is for the tests, and ends this by closing its input.
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=_ROOT, start_new_session=True)
        self._lock = threading.Lock()

    def ask(self, **order: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


@functools.cache
def _server() -> _Server:
    server = _Server()
    atexit.register(server.close)
    return server


# -- in the other process ---------------------------------------------------------------------------------------------


def _serve() -> None:
    for name in _MODULES:
        importlib.import_module(f"holdfast.{name}")
    warm_up()
    gc.freeze()  # no child need look for garbage in what was imported
    for line in sys.stdin:
        order = json.loads(line)
        answer = _wait(order["wait"]) if "wait" in order else _fork(order)
        print(json.dumps(answer), flush=True)


def _wait(pid: int) -> int | None:
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def _fork(order: dict[str, Any]) -> int:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            os.close(reader)
            _take_place(order)
            os.close(writer)
            code = _run(order["entry"], order["start"])
        finally:
            os._exit(code)
    os.close(writer)
    os.read(reader, 1)  # ends when it has its terminal: one that nobody has open looks closed to whoever reads
    os.close(reader)
    return pid


def _take_place(order: dict[str, Any]) -> None:
    """Become what a shell would have started."""
    os.setsid()
    for number, (path, flags) in enumerate(zip(order["streams"], (os.O_RDWR, os.O_WRONLY, os.O_WRONLY), strict=True)):
        opened = os.open(path, flags | os.O_NOCTTY)
        os.dup2(opened, number)
        os.close(opened)
    if os.isatty(0):
        # Ctrl-C typed into the terminal reaches the process only if the terminal is its own.
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", buffering=1, closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, closefd=False)  # type: ignore[misc]  # noqa: SIM115


def _run(entry: str, arguments: list[str]) -> int:
    module, _, name = entry.partition(":")
    main = getattr(importlib.import_module(module), name)
    sys.argv = ["holdfast", *arguments]
    code: Any = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    # As an interpreter ends: what still runs is waited for.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    return code if isinstance(code, int) else 0 if code is None else 1


if __name__ == "__main__":
    _serve()
