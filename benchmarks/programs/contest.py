"""One program in one system: `python -m benchmarks.programs.contest SYSTEM PROGRAM FOLDER first|again`.

`first` measures an undisturbed run and prints it, then begins a run in the middle of which the process dies; `again` is
the process after that, which goes on with the run.
"""

import asyncio
import importlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.programs import plan, work
from benchmarks.programs.plan import Program


async def _whole(system: Any, program: Program, run: str) -> None:
    task = asyncio.create_task(system.go(program.name, run))
    if program.is_nudged:
        await _until(program, run, task)
        await system.nudge(program.name, run)
    await task


async def _until(program: Program, run: str, task: "asyncio.Task[None]") -> None:
    while program.kill_at not in work.read(run):
        if task.done():
            task.result()  # raises what went wrong
            return
        await asyncio.sleep(0.005)


async def _measure(system: Any, program: Program) -> None:
    await system.go("change", f"{program.name}-warm-up")
    started = time.perf_counter()
    await _whole(system, program, program.undisturbed)
    wall_s = time.perf_counter() - started
    print(json.dumps({"wall_s": wall_s, "effects": work.read(program.undisturbed)}), flush=True)
    if not program.is_wait:
        work.kill_at(program.killed, program.kill_at)
        await system.go(program.name, program.killed)
        raise AssertionError("it should have died")
    task = asyncio.create_task(system.go(program.name, program.killed))
    await _until(program, program.killed, task)
    await asyncio.sleep(0.4)  # into the wait
    os.kill(os.getpid(), signal.SIGKILL)


def _tell_peak(path: str) -> None:
    """Write down this process's peak of memory again and again: it will be killed."""
    while True:
        with open("/proc/self/status") as status, open(path, "a") as file:
            peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))
            file.write(f"{int(peak) / 1024}\n")
        time.sleep(0.1)


async def main() -> None:
    name, program_name, folder, mode = sys.argv[1:]
    program = plan.BY_NAME[program_name]
    work.open_log(Path(folder))
    threading.Thread(target=_tell_peak, args=(os.environ["PROGRAMS_PEAK"],), daemon=True).start()
    system = importlib.import_module(f"benchmarks.programs.{name}")
    async with system.opened(Path(folder)):
        if mode == "first":
            await _measure(system, program)
        else:
            await _whole(system, program, program.killed)


if __name__ == "__main__":
    asyncio.run(main())
