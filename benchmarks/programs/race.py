"""`python -m benchmarks.programs.race [--only program,…]`: all programs in all systems by turns, and their table."""

import argparse
import contextlib
import json
import os
import random
import shutil
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.programs import plan, servers, work
from benchmarks.programs.plan import Program
from benchmarks.programs.servers import System

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "var" / "bench-programs"
PREFECT = ROOT / ".bench-venv-prefect" / "bin" / "python"
_TIMEOUT_S = 60
_QUIET = {"PYTHONWARNINGS": "ignore", "PYTHONPATH": str(ROOT), "DBOS__CLOUD": ""}


@dataclass(frozen=True)
class Result:
    """What one program has shown in one system."""

    wall_s: float
    steps: int
    continue_s: float
    """From the start of the second process until the first effect that was not there yet."""
    repeated: int
    extra: int
    """Effects that no undisturbed run has."""
    peak_mb: float


def measure(system: System, program: Program, folder: Path) -> Result:
    """Run it undisturbed, kill it in the middle, and let a second process go on. Raises `RuntimeError`."""
    folder.mkdir(parents=True)
    work.open_log(folder)
    first = _start(system, program, folder, "first")
    line, errors = first.communicate(timeout=_TIMEOUT_S)
    peak = _peak_of(folder, "first")
    if first.returncode != -9 or not line.strip():
        raise RuntimeError((errors.strip() or f"exit code {first.returncode}").splitlines()[-1][:200])
    undisturbed = json.loads(line)
    missing = set(program.effects) - set(undisturbed["effects"])
    if missing:
        raise RuntimeError(f"an undisturbed run has not done {sorted(missing)[0]!r}")
    if program.name == "timer":
        time.sleep(work.SLEEP_S)  # the timer is due before anybody is there again
    continue_s = _continue(system, program, folder)
    effects = work.read(program.killed)
    return Result(
        wall_s=max(undisturbed["wall_s"] - program.waits_s, 0.001),
        steps=len(program.effects),
        continue_s=continue_s,
        repeated=len(effects) - len(set(effects)),
        extra=len(set(effects) - set(program.effects)),
        peak_mb=max(peak, _peak_of(folder, "again")),
    )


def _start(system: System, program: Program, folder: Path, mode: str) -> "subprocess.Popen[str]":
    release = {"PROGRAMS_RELEASE": "2"} if mode == "again" else {}
    known = {"PROGRAMS_FOLDER": str(folder), "PROGRAMS_PEAK": str(folder / mode)}
    return subprocess.Popen(
        [system.python, "-m", "benchmarks.programs.contest", system.module, program.name, str(folder), mode],
        env=os.environ | _QUIET | system.environment | known | release,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _peak_of(folder: Path, mode: str) -> float:
    """What the process wrote last about itself: nobody can ask one that was killed."""
    try:
        return float((folder / mode).read_text().split()[-1])
    except (OSError, IndexError):
        return 0.0


def _continue(system: System, program: Program, folder: Path) -> float:
    """Wait until the killed run has done all that was left; return when the first of it was done."""
    before = set(work.read(program.killed))
    started = time.perf_counter()
    process = _start(system, program, folder, "again")
    found = 0.0
    try:
        while True:
            effects = set(work.read(program.killed))
            if effects - before and not found:
                found = time.perf_counter() - started
            if effects >= set(program.effects):
                return found
            if process.poll() is not None or time.perf_counter() - started > _TIMEOUT_S:
                said = (
                    process.stderr.read().strip() if process.poll() is not None and process.stderr else "it stood still"
                )
                raise RuntimeError((said or "it ended without its last steps").splitlines()[-1][:200])
            time.sleep(0.005)
    finally:
        time.sleep(0.2)  # its last word about its memory
        process.kill()
        process.communicate()


def run(programs: list[Program], order: random.Random) -> dict[str, Any]:
    """Measure all of them, the systems of one program next to each other."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    started = time.perf_counter()
    results: dict[str, dict[str, Any]] = {}
    absent: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        systems = servers.embedded()
        for name, server in (
            ("Temporal", servers.temporal(FOLDER)),
            ("Prefect", servers.prefect(FOLDER, str(PREFECT))),
        ):
            try:
                systems.append(stack.enter_context(server))
            except RuntimeError as error:
                absent[name] = _tell(error)
        for program in programs:
            for system in order.sample(systems, len(systems)):
                key = f"{program.name}/{system.title}"
                try:
                    result = measure(system, program, FOLDER / f"{program.name}-{system.module}")
                    results[key] = asdict(result)
                    print(f"  {key}: {result}", flush=True)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    absent[key] = _tell(error)
                    print(f"  {key}: not available: {absent[key]}", flush=True)
        found = {
            "systems": {system.title: _describe(system) for system in systems},
            "results": results,
            "not_available": absent,
            "took_s": round(time.perf_counter() - started),
        }
    shutil.rmtree(FOLDER, ignore_errors=True)
    return found


def _describe(system: System) -> dict[str, Any]:
    program = f"import importlib.metadata as m; print(m.version({system.package!r}))"
    known = subprocess.run([system.python, "-c", program], capture_output=True, text=True).stdout.strip()
    return {"module": system.module, "version": known or "not available", "server_mb": system.server_mb()}


def _tell(error: Exception) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"not done after {_TIMEOUT_S} s"
    return str(error).replace(str(ROOT), ".").replace(str(Path.home()), "~")


def main() -> None:
    from benchmarks.programs import table

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="programs, separated by commas")
    options = parser.parse_args()
    chosen = [program for program in plan.PROGRAMS if not options.only or program.name in options.only.split(",")]
    found = run(chosen, random.Random())
    table.publish(found, ROOT, is_whole=not options.only)


if __name__ == "__main__":
    main()
