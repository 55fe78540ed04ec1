"""A real server as a process of its own, with the agents of `world`: started, told where it listens, killed.

Run as a program: `python child.py FOLDER` with the settings in the environment; it prints the port once it listens.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class ServerProcess:
    def __init__(self, folder: Path, **settings: str) -> None:
        environment = {
            **os.environ,
            "HOLDFAST_WORKSPACE_ROOT": str(folder / "work"),
            "HOLDFAST_DATA_DIR": str(folder / "data"),
            "PYTHONPATH": str(Path(__file__).parents[3]),
            **settings,
        }
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(folder)], env=environment, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}"
        self.pid = self._process.pid

    def end(self, sig: int = signal.SIGKILL) -> int:
        self._process.send_signal(sig)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return self._process.wait(timeout=30)


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
        if server._process.poll() is None:
            server.end()


def main(folder: Path) -> None:
    from tests.integration.api.world import FAST, use_note_agents

    from holdfast.api.app import create_app
    from holdfast.api.running import GracefulServer, to_uvicorn

    if os.environ.get("HOLDFAST_TEST_AGENTS") != "simulated":
        use_note_agents(folder / "gates")
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", int(os.environ.get("HOLDFAST_TEST_PORT", "0"))))
    app = create_app(options=FAST)
    server = GracefulServer(to_uvicorn(app))

    listening.listen()  # from here on a client waits for the app instead of being refused
    print(listening.getsockname()[1], flush=True)
    server.run(sockets=[listening])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
