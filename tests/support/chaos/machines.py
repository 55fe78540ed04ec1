"""Machines, a server that drives nothing, and the network between them and Postgres, all of which can fail.

A machine has a data directory of its own and a wire of its own to the database, and no other one can see that it is
dead: it is a process with a name of its own as host, boot and process namespace, or really has namespaces of its own.
"""

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.api.server_process import free_port
from tests.support.chaos.namespaces import KernelMachine, KernelProcess, leading_to
from tests.support.chaos.older import OlderProcess
from tests.support.fleet_machines import to_environment
from tests.support.forked_command import Speaking
from tests.support.network import Wire, open_wire
from tests.support.progress_limit import wait_until

NAMES = ("alpha", "beta", "gamma")
_AGAIN_S = 0.5


@dataclass
class ChaosMachine:
    """A worker that can be killed, stopped, cut off and destroyed, and begun again."""

    name: str
    folder: Path
    wire: Wire
    arguments: Sequence[str]
    package: Path | None = None
    """Where its holdfast is, if it is of another version."""
    model: tuple[int, str] | None = None
    """The port and the socket of the model server, if it is to have namespaces."""
    process: Speaking | OlderProcess | KernelProcess | None = None
    kernel: KernelMachine | None = None
    pid: int = 0
    """Of its last worker."""
    frozen: list[str] = field(default_factory=list)
    """Its workers that were stopped or cut off for longer than a lease, and then went on, as they call themselves."""

    @property
    def data_dir(self) -> Path:
        return self.folder / f"data-{self.name}"

    def start(self) -> None:
        environment = to_environment(self.folder, with_machine(self.wire.url, self.name), self.name)
        command = ["worker", "--name", self.name, "--grace", "2", *self.arguments]
        log = self.folder / f"{self.name}.log"
        if self.model is not None:
            self.process = self._start_in_kernel(command, environment, log)
        elif self.package is None:
            self.process = Speaking(command, environment, log)
        else:
            self.process = OlderProcess(self.package, command, environment, log)
        self.pid = self.process.process.pid

    def _start_in_kernel(self, command: Sequence[str], environment: dict[str, str], log: Path) -> KernelProcess:
        assert self.model is not None
        if self.kernel is None:
            self.kernel = KernelMachine(self.name, environment["HOLDFAST_DATABASE_URL"], *self.model)
        del environment["HOLDFAST_TEST_MACHINE"]
        environment["HOLDFAST_DATABASE_URL"] = self.kernel.url
        if self.package is not None:
            environment["PYTHONPATH"] = str(self.package)
        program = [sys.executable, "-c", "from holdfast.cli.app import main; main()", *command]
        return self.kernel.start(program, environment, log)

    @property
    def has_ended(self) -> bool:
        """Whether its worker has ended by itself, as one does that finds no database when it starts."""
        if self.process is None:
            return False
        process = self.process.outer if isinstance(self.process, KernelProcess) else self.process.process
        return process.poll() is not None

    def kill(self) -> None:
        """Kill the worker; commands that it has begun go on, as they do."""
        if self.process is not None:
            self.process.end(signal.SIGKILL)
            self.process = None

    def destroy(self) -> None:
        """Take its power and its disk: commands die with it, and nothing of it comes back."""
        self.kill()
        if self.kernel is not None:
            self.kernel.power_off()
            self.kernel = None
        for pid in _list_pids_of(self.data_dir):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not _list_pids_of(self.data_dir), f"the commands of {self.name} are gone")
        shutil.rmtree(self.data_dir, ignore_errors=True)

    def pause(self) -> None:
        self._note_frozen()
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)

    def cut_off(self) -> None:
        """Nothing gets through in either direction, and nobody is told."""
        self._note_frozen()
        if self.kernel is not None:
            self.kernel.set_link("down")
        else:
            self.wire.is_flowing.clear()

    def join(self) -> None:
        """What was on its way arrives, late."""
        if self.kernel is not None:
            self.kernel.set_link("up")
        self.wire.is_flowing.set()

    def _note_frozen(self) -> None:
        pid = self.process.inner_pid if isinstance(self.process, KernelProcess) else self.pid
        self.frozen.append(f"{self.name}:{pid}")


@dataclass
class Fleet:
    folder: Path
    url: str
    machines: list[ChaosMachine]
    port: int
    server: Speaking | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start_server(self) -> None:
        environment = to_environment(self.folder, self.url, "office")
        command = ["serve", "--no-drive", "--no-auth", "--no-browser", "--port", str(self.port)]
        while True:
            self.server = Speaking(command, environment, self.folder / "office.log")
            if self.server.read_line():
                return
            self.kill_server()  # it found no database and has ended; a service manager starts it again
            time.sleep(_AGAIN_S)

    def kill_server(self) -> None:
        if self.server is not None:
            self.server.end(signal.SIGKILL)
            self.server = None


@contextlib.contextmanager
def running_fleet(
    folder: Path,
    url: str,
    arguments: Sequence[str],
    *,
    host: str,
    older: Path | None = None,
    model_port: int | None = None,
) -> Iterator[Fleet]:
    """Start a server and three machines, each behind a wire to the server with its socket in `host`.

    With `older` there is one more, whose holdfast is there. With the port of the model server they have namespaces.
    Whatever a test has done to them, they end.
    """
    with contextlib.ExitStack() as stack:
        machines, model = [], None
        if model_port is not None:
            model = model_port, f"{stack.enter_context(tempfile.TemporaryDirectory(prefix='hf-model-'))}/socket"
            stack.enter_context(leading_to(*model))
        for name in (*NAMES, *(["older"] if older else [])):
            wire = stack.enter_context(open_wire(url))
            wire.has_ends, wire.host = True, host
            package = older if name == "older" else None
            machines.append(ChaosMachine(name, folder, wire, arguments, package, model))
        fleet = Fleet(folder, url, machines, free_port())
        stack.callback(fleet.kill_server)
        fleet.start_server()
        for machine in machines:
            stack.callback(machine.destroy)
            stack.callback(machine.join)
            machine.start()
        yield fleet


def with_machine(url: str, name: str) -> str:
    """Let the database know who writes: `options` of a connection may set a variable of any name with a dot."""
    assert "options=" in url
    return f"{url}%20-cchaos.machine%3D{name}"


def _list_pids_of(folder: Path) -> list[int]:
    """The processes that run in a folder, or are told of it."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            with contextlib.suppress(OSError):
                words = (process / "cmdline").read_bytes()
                is_there = str((process / "cwd").readlink()).startswith(f"{folder}/")
                state = (process / "stat").read_text().rpartition(")")[2].split()[0]
                if (is_there or f"{folder}/".encode() in words) and state != "Z":
                    found.append(int(process.name))
    return found
