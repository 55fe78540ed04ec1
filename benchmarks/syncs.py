"""Counted, not timed: how often each contestant syncs per step, as the difference between 200 steps and 100."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.plan import COUNTED, Job
from benchmarks.server import Server

if TYPE_CHECKING:
    from benchmarks.run import Bench

_MORE, _LESS = 200, 100


def count(bench: "Bench", folder: Path) -> dict[str, float | str]:
    """Syncs per step by job, or why they could not be counted."""
    found: dict[str, float | str] = {}
    for job in COUNTED:
        try:
            counts = [_count(bench, job, steps, folder) for steps in (_MORE, _LESS)]
            found[job.work] = (counts[0] - counts[1]) / (_MORE - _LESS)
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            found[job.work] = f"not counted: {type(error).__name__}"
        print(f"  syncs per step, {job.work}: {found[job.work]}", flush=True)
    return found


def _count(bench: "Bench", job: Job, steps: int, folder: Path) -> int:
    work = folder / f"syncs-{steps}"
    work.mkdir()
    try:
        if job.is_postgres:
            return _count_on_server(bench, job, steps, work)
        # -f follows threads, -c counts; the anchor's own syncs are the same in both calls and cancel out
        log = work / "strace"
        bench.call(
            job.work, work, steps, "", prefix=(_strace(), "-f", "-c", "-e", "trace=fsync,fdatasync", "-o", str(log))
        )
        rows = re.findall(r"^ *[\d.]+ +[\d.]+ +\d+ +(\d+) .*(?:fsync|fdatasync)$", log.read_text(), re.MULTILINE)
        return sum(int(calls) for calls in rows)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _count_on_server(bench: "Bench", job: Job, steps: int, work: Path) -> int:
    if not isinstance(bench.server, Server):
        raise RuntimeError("no server")
    with bench.server.database() as url:
        before = bench.server.syncs()
        bench.call(job.work, work, steps, url)
        return bench.server.syncs() - before


def _strace() -> str:
    found = shutil.which("strace")
    if found is None:
        raise FileNotFoundError("strace")
    return found
