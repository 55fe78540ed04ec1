"""Three machines, a server that drives nothing, and the network between them and Postgres, all of which can fail.

A machine is a process with a data directory and a name of its own as host, boot and process namespace, so that no other
one can see that it is dead. Each has a wire of its own to the database.
"""

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.api.server_process import free_port
from tests.support.fleet_machines import to_environment
from tests.support.forked_command import Speaking
from tests.support.network import Wire, open_wire
from tests.support.progress_limit import wait_until

NAMES = ("alpha", "beta", "gamma")


@dataclass
class ChaosMachine:
    """A worker that can be killed, stopped, cut off and destroyed, and begun again."""

    name: str
    folder: Path
    wire: Wire
    arguments: Sequence[str]
    process: Speaking | None = None
    pids: list[int] = field(default_factory=list)
    """Of all its workers, the last one last."""
    frozen: list[int] = field(default_factory=list)
    """Those of them that were stopped or cut off for longer than a lease, and then went on."""

    @property
    def data_dir(self) -> Path:
        return self.folder / f"data-{self.name}"

    def start(self) -> None:
        environment = to_environment(self.folder, with_machine(self.wire.url, self.name), self.name)
        command = ["worker", "--name", self.name, "--grace", "2", *self.arguments]
        self.process = Speaking(command, environment, self.folder / f"{self.name}.log")
        self.pids.append(self.process.process.pid)

    def kill(self) -> None:
        """Kill the worker; commands that it has begun go on, as they do."""
        if self.process is not None:
            self.process.end(signal.SIGKILL)
            self.process = None

    def destroy(self) -> None:
        """Take its power and its disk: commands die with it, and nothing of it comes back."""
        self.kill()
        for pid in _list_pids_of(self.data_dir):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not _list_pids_of(self.data_dir), f"the commands of {self.name} are gone")
        shutil.rmtree(self.data_dir, ignore_errors=True)

    def pause(self) -> None:
        self.frozen.append(self.pids[-1])
        os.kill(self.pids[-1], signal.SIGSTOP)

    def go_on(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pids[-1], signal.SIGCONT)

    def cut_off(self) -> None:
        """Nothing gets through in either direction, and nobody is told."""
        self.frozen.append(self.pids[-1])
        self.wire.is_flowing.clear()

    def join(self) -> None:
        """What was on its way arrives, late."""
        self.wire.is_flowing.set()


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
        self.server = Speaking(command, environment, self.folder / "office.log")
        self.server.read_line()

    def kill_server(self) -> None:
        if self.server is not None:
            self.server.end(signal.SIGKILL)
            self.server = None


@contextlib.contextmanager
def running_fleet(folder: Path, url: str, arguments: Sequence[str]) -> Iterator[Fleet]:
    """Start a server and three machines, each behind a wire; whatever a test has done to them, they end."""
    with contextlib.ExitStack() as stack:
        machines = []
        for name in NAMES:
            wire = stack.enter_context(open_wire(url))
            wire.has_ends = True
            machines.append(ChaosMachine(name, folder, wire, arguments))
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
