"""What one simulated `spec-and-review` run costs a server that has done some before: CPU time and git processes.

    python -m benchmarks.warm_run [--runs 20] [--against FOLDER/src]

`make bench` compares it with the code of before the fleet, where the repository has that commit.

Each side is a `holdfast serve` on SQLite of its own; runs are begun over HTTP, one after the other, and their end is
read from the database, so that looking costs the server nothing. CPU is user and system time of the server and of
the processes it started. With `--against`, the package below that folder is measured by turns with this one, run by
run. Git processes are counted by a program in the way of `git`, in runs of their own after those.
"""

import argparse
import contextlib
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measure import Place, Reading, git, reading

SOURCE = Path(__file__).resolve().parents[1] / "src"
BEFORE = "0a6e32fc"
"""The last commit without workers."""
WARM_UP = 5
COUNTED = 3
MOST_S = 60
TICKS = os.sysconf("SC_CLK_TCK")


class WarmServer:
    """A server of one source tree, with its data and a small repository in one folder."""

    def __init__(self, source: Path, folder: Path) -> None:
        self.folder = folder
        self.repo = folder / "repo"
        self.git_log = folder / "git.log"
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")},
            "PYTHONPATH": str(source),
            "HOME": str(folder),
            "HOLDFAST_DATA_DIR": str(folder / "data"),
            "HOLDFAST_WORKSPACE_ROOT": str(folder),
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        }
        self._process: subprocess.Popen[str] | None = None
        self._url = ""

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        words = ["serve", "--port", "0", "--no-auth", "--no-browser"]
        with (self.folder / "serve.log").open("a+") as log:
            begin = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "holdfast", *words],
                env=self._environment,
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
            )
            try:
                self._url = self._wait_for_url(begin)
                yield
            finally:
                self._process.terminate()
                self._process.wait(MOST_S)

    def _wait_for_url(self, begin: int) -> str:
        give_up_at = time.monotonic() + MOST_S
        while time.monotonic() < give_up_at and self._process and self._process.poll() is None:
            for word in (self.folder / "serve.log").read_text()[begin:].split():
                if word.startswith("http://127.0.0.1:"):
                    return word.rstrip("/.")
            time.sleep(0.05)
        raise RuntimeError((self.folder / "serve.log").read_text())

    def do_run(self) -> float:
        """Do a run to its end and return the seconds of CPU that it took."""
        began = self._read_cpu_s()
        body = {"workflow": "spec-and-review", "repo_path": str(self.repo), "simulate": True}
        request = urllib.request.Request(
            f"{self._url}/api/runs",
            json.dumps({**body, "requirements_md": "Add a flag."}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=MOST_S) as answer:
            run_id = json.load(answer)["run_id"]
        self._wait_for_end(run_id)
        return self._read_cpu_s() - began

    def _wait_for_end(self, run_id: str) -> None:
        give_up_at = time.monotonic() + MOST_S
        with contextlib.closing(sqlite3.connect(f"file:{self.folder}/data/holdfast.db?mode=ro", uri=True)) as db:
            while time.monotonic() < give_up_at:
                row = db.execute("SELECT state FROM runs WHERE id = ?", (run_id,)).fetchone()
                if row and row[0] in ("completed", "failed", "paused", "aborted"):
                    assert row[0] == "completed", row[0]
                    return
                time.sleep(0.005)
        raise RuntimeError(f"not ended after {MOST_S} s: {row}")

    def _read_cpu_s(self) -> float:
        """Read user and system time of the process and of the children it has waited for."""
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(") ")[2].split()
        return sum(int(ticks) for ticks in fields[11:15]) / TICKS

    def count_git(self) -> None:
        """From the next start on, write down each start of git."""
        program = self.folder / "bin" / "git"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\necho "$*" >> {self.git_log}\nexec {shutil.which("git")} "$@"\n')
        program.chmod(0o755)


def make_repository(folder: Path) -> None:
    folder.mkdir()
    (folder / "README.md").write_text("# Sample\n")
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "begin"]):
        git(folder, *words)


def runs_in_warm_server(place: Place) -> Reading:
    """Do as many runs as there are steps, and as many with the code of before the fleet."""
    archive, old = place.folder / "old.tar", place.folder / "old"
    sources = {"now": SOURCE, "before": old / "src"}
    try:
        git(SOURCE.parent, "archive", f"--output={archive}", BEFORE, "src")
        shutil.unpack_archive(archive, old, filter="data")
    except subprocess.CalledProcessError:  # a clone without history
        del sources["before"]
    with reading() as found:
        sides = measure(sources, place.steps, place.folder)
    found.extra = {f"{side}_{name}": value for side, facts in sides.items() for name, value in facts.items()}
    return found


def measure(sources: dict[str, Path], runs: int, folder: Path) -> dict[str, dict[str, Any]]:
    servers = {}
    for name, source in sources.items():
        (folder / name).mkdir()
        servers[name] = WarmServer(source, folder / name)
        make_repository(servers[name].repo)
    used: dict[str, list[float]] = {name: [] for name in servers}
    with contextlib.ExitStack() as stack:
        for server in servers.values():
            stack.enter_context(server.running())
        for number in range(WARM_UP + runs):
            for name, server in servers.items():
                cpu_s = server.do_run()
                if number >= WARM_UP:
                    used[name].append(cpu_s)
    return {
        name: {
            "cpu_ms": round(statistics.fmean(used[name]) * 1000),
            "cpu_ms_median": round(statistics.median(used[name]) * 1000),
            "git_processes": _count_git(server),
        }
        for name, server in servers.items()
    }


def _count_git(server: WarmServer) -> float:
    server.count_git()
    with server.running():
        server.do_run()
        server.git_log.unlink()
        for _ in range(COUNTED):
            server.do_run()
    return len(server.git_log.read_text().splitlines()) / COUNTED


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--against", type=Path, help="another source tree, such as that of an older commit")
    chosen = parser.parse_args()
    sources = {"now": SOURCE} | ({"before": chosen.against.resolve()} if chosen.against else {})
    with tempfile.TemporaryDirectory(prefix="hf-warm-") as folder:
        found: dict[str, Any] = measure(sources, chosen.runs, Path(folder))
    if chosen.against:
        found["ratio"] = round(found["now"]["cpu_ms"] / found["before"]["cpu_ms"], 2)
    print(json.dumps({"runs": chosen.runs, **found}))


if __name__ == "__main__":
    main()
