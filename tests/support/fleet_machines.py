"""Machines for tests: workers as processes, each with its own data directory and its own name as a machine.

`main` is the program: its first argument is the folder of the gates, the others are those of `holdfast worker`.
"""

import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.forked_command import Speaking, SpeakingProgram
from tests.support.system_clock import find_faketime, to_faketime

DIES_IN = "HOLDFAST_TEST_DIES_IN"
"""Names a function, as `module:name`; a machine that calls it is gone."""
HAS_AGENTS = "HOLDFAST_TEST_HAS_AGENTS"
"""A machine that runs the agents of its personas, and no fake."""
AHEAD_S = "HOLDFAST_TEST_AHEAD_S"
"""How many seconds a machine's clock is ahead: that of all its processes, where faketime is installed."""
FLOWS = """
import asyncio
import os
import signal
from pathlib import Path
from holdfast import flow

EFFECTS = Path(__file__).with_name("effects")


def note(word):
    with EFFECTS.open("a") as file:
        file.write(word + "\\n")
    return word


@flow("count")
async def count(ctx, name, steps):
    done = []
    for number in range(steps):
        done.append(await ctx.step(f"step {number}", note, f"{name} {number}"))
        await asyncio.sleep(0.05)
    return len(done)


@flow("nap")
async def nap(ctx, seconds=3600):
    await ctx.sleep(seconds)


async def hold(name):
    note(f"{name} begins")
    while EFFECTS.with_name(f"{name}.closed").exists():
        await asyncio.sleep(0.01)
    return note(f"{name} ends")


@flow("held")
async def held(ctx, name):
    await ctx.step("call", hold, name)
    await ctx.step("after", note, f"{name} after")


@flow("poison")
async def poison(ctx):
    await ctx.step("before", note, "poison before")
    await ctx.step("dies", lambda: EFFECTS.with_name("cured").exists() or os.kill(os.getpid(), signal.SIGKILL))


@flow("one", max_parallel=1)
async def one(ctx, name):
    await ctx.step("begin", note, f"{name} begins")
    while EFFECTS.with_name(f"{name}.closed").exists():
        await asyncio.sleep(0.01)
    await ctx.step("end", note, f"{name} ends")


@flow("ask")
async def ask(ctx, name):
    await ctx.step("before", note, f"{name} before")
    await ctx.approval("go")
    await ctx.step("after", note, f"{name} after")
"""


def to_environment(folder: Path, url: str, name: str) -> dict[str, str]:
    """The environment of a process on a machine of this name, with a data directory of its own."""
    return {
        **os.environ,
        "HOLDFAST_DATABASE_URL": url,
        "HOLDFAST_WORKSPACE_ROOT": str(folder / "work"),
        "HOLDFAST_DATA_DIR": str(folder / f"data-{name}"),
        "HOLDFAST_CONFIG": str(folder / "config" / "config.toml"),
        "HOLDFAST_TEST_MACHINE": name,
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }


class Machine:
    """A worker on a machine of its own."""

    def __init__(self, folder: Path, url: str, name: str, *arguments: str, **settings: str) -> None:
        self.name = name
        self.data_dir = folder / f"data-{name}"
        environment = {**to_environment(folder, url, name), **settings}
        command = [str(folder / "gates"), "worker", "--name", name, *arguments]
        entry, log = f"{__name__}:main", folder / f"{name}.log"
        if AHEAD_S in settings and (library := find_faketime()) is not None:
            environment.update(to_faketime(library, float(environment.pop(AHEAD_S))))
            self._process: Speaking | SpeakingProgram = SpeakingProgram(command, environment, log, entry)
        else:
            self._process = Speaking(command, environment, log, entry=entry)
        self.greeting = self._process.read_line()
        self.pid = self._process.process.pid

    @property
    def is_running(self) -> bool:
        return self._process.process.poll() is None

    def read_line(self) -> str:
        return self._process.read_line()

    def wait(self) -> int:
        return self._process.process.wait()

    def stop(self) -> None:
        """Let its process stand still; what it has started goes on."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def end(self, sig: int = signal.SIGKILL) -> int:
        return self._process.end(sig)


@contextmanager
def machines(
    folder: Path, url: str, *names: str, arguments: tuple[str, ...] = (), **settings: str
) -> Iterator[list[Machine]]:
    (folder / "config").mkdir(exist_ok=True)
    (folder / "config" / "config.toml").touch()
    started = [Machine(folder, url, name, *arguments, **settings) for name in names]
    try:
        yield started
    finally:
        for machine in started:
            if machine.is_running:
                os.kill(machine.pid, signal.SIGCONT)
            machine.end()


def _die(*_args: object, **_kw: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _sleep(seconds: Any) -> None:
    threading.Event().wait(seconds)


def main() -> None:
    from tests.support.api.server_world import use_note_agents

    from holdfast.cli.app import main as command

    if HAS_AGENTS not in os.environ:
        use_note_agents(Path(sys.argv[1]))
    if "faketime" in os.environ.get("LD_PRELOAD", ""):
        # Python sleeps until a moment of the clock that is not faked, which the library refuses.
        time.sleep = _sleep
    if ahead_s := float(os.environ.get(AHEAD_S, 0)):
        real = time.time
        time.time = lambda: real() + ahead_s
    if place := os.environ.get(DIES_IN):
        module, _, name = place.partition(":")
        setattr(importlib.import_module(module), name, _die)
    sys.argv = ["holdfast", *sys.argv[2:]]
    command()
