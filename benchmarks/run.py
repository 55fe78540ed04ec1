"""`python -m benchmarks.run [--quick] [--only block,…]`: all rounds, then the table. See `plan.py` for what is run."""

import argparse
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import plan, report, syncs
from benchmarks.plan import Job
from benchmarks.server import Server, running

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "var" / "bench"
_TIMEOUT_S = 240
_ENVIRONMENT = {"LANGSMITH_TRACING": "false", "DBOS__CLOUD": "", "PYTHONWARNINGS": "ignore", "PYTHONPATH": str(ROOT)}


class Bench:
    """Runs jobs in processes of their own and keeps what they say."""

    def __init__(self, server: Server | str, *, is_quick: bool) -> None:
        self.server = server
        self.is_quick = is_quick
        self.results: dict[str, list[dict[str, Any]]] = {}
        self.missing: dict[str, str] = {}
        self._filled: dict[str, Path] = {}
        if isinstance(server, str):
            self.missing["postgres"] = server

    def steps(self, job: Job) -> int:
        return job.quick_steps if self.is_quick else job.steps

    def run(self, block: str, job: Job, number: int) -> None:
        key = f"{block}/{job.work}"
        if key in self.missing or (job.is_postgres and isinstance(self.server, str)):
            return
        started = time.perf_counter()
        try:
            with self._folder(job, number) as folder, self._url(job) as url:
                found = self.call(job.work, folder, self.steps(job), url)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            self.missing[key] = _tell(error)
            print(f"  {key}: not available: {self.missing[key]}", flush=True)
            return
        self.results.setdefault(key, []).append({"round": number, **found})
        print(f"  {key}: {report.brief(found)} ({time.perf_counter() - started:.1f} s in all)", flush=True)

    def call(self, work: str, folder: Path, steps: int, url: str, *, prefix: tuple[str, ...] = ()) -> dict[str, Any]:
        command = [*prefix, sys.executable, "-m", "benchmarks.job", work, str(folder), str(steps), url]
        done = subprocess.run(
            command, env=os.environ | _ENVIRONMENT, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
        if done.returncode:
            raise RuntimeError((done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1])
        return json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {}

    @contextlib.contextmanager
    def _folder(self, job: Job, number: int) -> Iterator[Path]:
        if job.fill and not job.is_copied:
            yield self._fill(job)
            return
        folder = FOLDER / f"{job.work}-{number}"
        if job.fill:
            shutil.copytree(self._fill(job), folder)
        else:
            folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _fill(self, job: Job) -> Path:
        if job.fill not in self._filled:
            folder = FOLDER / f"{job.fill}-filled"
            folder.mkdir(parents=True)
            self.call(job.fill, folder, self.steps(job), "")
            self._filled[job.fill] = folder
        return self._filled[job.fill]

    @contextlib.contextmanager
    def _url(self, job: Job) -> Iterator[str]:
        if job.is_postgres and isinstance(self.server, Server):
            with self.server.database() as url:
                yield url
        else:
            yield ""


def _tell(error: Exception) -> str:
    """The reason, without this machine's paths."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"not done after {_TIMEOUT_S} s"
    return str(error).replace(str(ROOT), ".").replace(str(Path.home()), "~")[:200]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and steps; the README stays as it is")
    parser.add_argument("--only", default="", help="blocks, separated by commas")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    blocks = {name: jobs for name, jobs in plan.BLOCKS.items() if not options.only or name in options.only.split(",")}
    rounds = plan.QUICK_ROUNDS if options.quick else plan.ROUNDS
    order = random.Random(options.seed)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    started = time.perf_counter()
    with running(FOLDER) as server:
        bench = Bench(server, is_quick=options.quick)
        for number in range(1, rounds + 1):
            print(f"round {number} of {rounds}, {time.perf_counter() - started:.0f} s so far", flush=True)
            for name in order.sample(list(blocks), len(blocks)):
                for job in order.sample(blocks[name], len(blocks[name])):
                    if job.is_in(number, rounds):
                        bench.run(name, job, number)
        counted = {} if options.only and "syncs" not in options.only else syncs.count(bench, FOLDER)
        facts = report.machine(server)
    shutil.rmtree(FOLDER, ignore_errors=True)
    found = {
        "machine": facts,
        "seed": options.seed,
        "is_quick": options.quick,
        "took_s": round(time.perf_counter() - started),
        "not_available": bench.missing,
        "syncs_per_step": counted,
        "jobs": bench.results,
    }
    report.publish(found, ROOT, is_whole=not options.quick and not options.only)


if __name__ == "__main__":
    main()
