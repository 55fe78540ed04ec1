"""Machines of the kernel: each has its own processes, host name and network, in which only loopback is.

The program is the first process of such a machine. What its workers ask of Postgres and of the model server goes over
its own loopback, as TCP does, and from there through sockets in folders, which are all that leads out. With loopback
down nothing arrives any more, and nobody is told. It needs root.
"""

import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

from tests.support.progress_limit import wait_until

_ROOT = Path(__file__).parents[3]
_POSTGRES = 5432
_KINDS = ("--net", "--pid", "--uts", "--mount")


def can_have_namespaces() -> bool:
    """Whether machines can be made here."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        return False
    return subprocess.run(["unshare", *_KINDS, "--fork", "true"], capture_output=True, check=False).returncode == 0


class KernelMachine:
    """The namespaces of one machine, from power on to power off."""

    def __init__(self, name: str, url: str, model_port: int, model_socket: str) -> None:
        parts = urlsplit(url)
        folder = parse_qs(parts.query)["host"][0]
        self.url = url.replace(quote(folder, safe="/"), "127.0.0.1")
        routes = [f"{_POSTGRES}={folder}/.s.PGSQL.{_POSTGRES}", f"{model_port}={model_socket}"]
        command = ["unshare", *_KINDS, "--fork", "--kill-child", "--mount-proc"]
        self._outer = subprocess.Popen(
            [*command, sys.executable, "-m", __name__, name, *routes], cwd=_ROOT, stdout=subprocess.PIPE, text=True
        )
        assert self._outer.stdout is not None
        assert self._outer.stdout.readline() == "ready\n"
        [self._first] = _list_children(self._outer.pid)

    def start(self, program: Sequence[str], env: Mapping[str, str], log: Path) -> "KernelProcess":
        with log.open("ab") as out:
            process = subprocess.Popen(
                [*self._enter(*_KINDS), *program],
                env=dict(env),
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        return KernelProcess(process)

    def set_link(self, state: str) -> None:
        """Take loopback `down` or bring it `up`."""
        subprocess.run([*self._enter("--net"), "ip", "link", "set", "lo", state], check=True)

    def power_off(self) -> None:
        """All that runs there is gone at once."""
        self._outer.kill()
        self._outer.wait()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._first, signal.SIGKILL)
        assert self._outer.stdout is not None
        self._outer.stdout.close()

    def _enter(self, *kinds: str) -> list[str]:
        return ["nsenter", "-t", str(self._first), *kinds, "--"]


class KernelProcess:
    """A worker in there; `process.pid` is its number out here, which signals go to."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.outer = process
        self.process = self
        wait_until(lambda: process.poll() is not None or _list_children(process.pid), "the worker is there")
        self.pid = next(iter(_list_children(process.pid)), process.pid)

    @property
    def inner_pid(self) -> int:
        """Its number as it knows it."""
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith("NSpid:"):
                    return int(line.split()[-1])
        return self.pid

    def end(self, number: int) -> int:
        if self.outer.poll() is None:
            for sent in (signal.SIGCONT, number):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, sent)
        wait_until(self._is_over, f"process {self.pid} ends")
        return self.outer.wait()

    def _is_over(self) -> bool:
        """nsenter stops with the process that it waits for, and goes on only if it is told to."""
        if self.outer.poll() is None:
            self.outer.send_signal(signal.SIGCONT)
        return self.outer.poll() is not None


@contextlib.contextmanager
def leading_to(port: int, path: str) -> Iterator[None]:
    """Let a socket in a folder lead to a port of this machine."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        _serve(listener, lambda: socket.create_connection(("127.0.0.1", port)))
        yield


def _list_children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _serve(listener: socket.socket, connect: Callable[[], socket.socket]) -> None:
    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                try:
                    server = connect()
                except OSError:
                    client.close()
                    continue
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=_carry, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)  # whoever carries the other way ends too, and closes its own
    source.close()


def _connect_to(path: str) -> socket.socket:
    end = socket.socket(socket.AF_UNIX)
    end.connect(path)
    return end


def main() -> None:
    """Be the first process of a machine: bring its network up, lead out of it, and bury its dead."""
    name, *routes = sys.argv[1:]
    socket.sethostname(name)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for route in routes:
        port, _, path = route.partition("=")
        listener = socket.create_server(("127.0.0.1", int(port)), backlog=100)
        _serve(listener, functools.partial(_connect_to, path))
    print("ready", flush=True)
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        time.sleep(0.2)


if __name__ == "__main__":
    main()
