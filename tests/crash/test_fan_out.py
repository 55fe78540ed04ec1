"""A process that dies among parallel plain functions: what had ended before is recorded and not made again.

The loop is kept busy until the first function has ended. So a result that is recorded in the loop's own time is lost
with the process, every time.
"""

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

_PROGRAM = """
import asyncio, os, signal, sys, threading
from pathlib import Path
import holdfast

effects, store, dies = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "dies"
threads, ended = {}, threading.Event()


class Loop(asyncio.SelectorEventLoop):
    def call_soon_threadsafe(self, callback, *args, context=None):
        handle = super().call_soon_threadsafe(callback, *args, context=context)
        if threads.get("first") == threading.get_ident():  # its thread tells that it has ended
            ended.set()
        return handle


def act(name):
    threads[name] = threading.get_ident()
    with effects.open("a") as file:
        file.write(f"{name}\\n")
    if name == "second" and dies:
        os.kill(os.getpid(), signal.SIGKILL)
    return name


async def second(ctx):
    if dies:
        assert ended.wait(60)  # and the loop with it
    return await ctx.step("second", act, "second")


async def flow(ctx):
    return list(await ctx.gather(ctx.step("first", act, "first"), second(ctx)))


with asyncio.Runner(loop_factory=Loop) as runner:
    assert runner.run(holdfast.run_flow(flow, run_id="r", store=store)) == ["first", "second"]
"""


def _run(folder: Path, mode: str) -> int:
    command = [sys.executable, "-c", _PROGRAM, str(folder / "effects"), str(folder / "holdfast.db"), mode]
    return subprocess.run(command, timeout=120).returncode


def test_a_function_that_has_ended_is_recorded_before_the_next_one_begins(tmp_path: Path) -> None:
    assert _run(tmp_path, "dies") == -signal.SIGKILL
    assert _run(tmp_path, "lives") == 0

    assert Counter((tmp_path / "effects").read_text().split()) == {"first": 1, "second": 2}
