"""A real server as a process of its own, with the agents of `world`: started, told where it listens, killed.

`main` is the program: its argument is the folder, its settings are in the environment; it prints the port once it
listens.
"""

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.forked_command import Speaking


class ServerProcess:
    def __init__(self, folder: Path, **settings: str) -> None:
        environment = {
            **os.environ,
            "HOLDFAST_WORKSPACE_ROOT": str(folder / "work"),
            "HOLDFAST_DATA_DIR": str(folder / "data"),
            "PYTHONPATH": str(Path(__file__).parents[3]),
            **settings,
        }
        self._process = Speaking([str(folder)], environment, folder / "server.log", entry=f"{__name__}:main")
        self.port = int(self._process.read_line())
        self.url = f"http://127.0.0.1:{self.port}"
        self.pid = self._process.process.pid

    @property
    def is_running(self) -> bool:
        return self._process.process.poll() is None

    def end(self, sig: int = signal.SIGKILL) -> int:
        return self._process.end(sig)


def free_port() -> int:
    """A port that a server can take again after it was killed."""
    with socket.socket() as probing:
        probing.bind(("127.0.0.1", 0))
        return int(probing.getsockname()[1])


@contextmanager
def serving(folder: Path, **settings: str) -> Iterator[ServerProcess]:
    server = ServerProcess(folder, **settings)
    try:
        yield server
    finally:
        if server.is_running:
            server.end()


def main() -> None:
    folder = Path(sys.argv[1])
    from tests.support.api.server_world import FAST, use_note_agents

    from holdfast.api.app import create_app
    from holdfast.api.serve import GracefulServer, to_uvicorn

    if os.environ.get("HOLDFAST_TEST_AGENTS") != "simulated":
        use_note_agents(folder / "gates")
    if slow := os.environ.get("HOLDFAST_TEST_SLOW_LS"):
        _slow_down_listings(Path(slow))
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", int(os.environ.get("HOLDFAST_TEST_PORT", "0"))))
    app = create_app(options=FAST)
    server = GracefulServer(to_uvicorn(app))

    listening.listen()  # from here on a client waits for the app instead of being refused
    print(listening.getsockname()[1], flush=True)
    server.run(sockets=[listening])


def _slow_down_listings(mark: Path) -> None:
    """Let the tool that lists files stand still in its thread, as on a file system that does not answer."""
    from holdfast.agents.tools.files import WholeFileBackend

    def stand_still(*_args: object, **_options: object) -> None:
        mark.touch()
        threading.Event().wait()

    WholeFileBackend.ls = stand_still  # type: ignore[method-assign,assignment]
