"""Plays a phase in forked processes that kill themselves at a given point, then goes on with it in another one.

The framework takes seconds to import; here it is imported once, and each try is a fork of that state.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.agents.phase import ARTIFACT, Phase, digest, essence, outcomes

import holdfast.agents.simulated.model as simulated
import holdfast.agents.tools.files as disk
from holdfast.runtime.checkpoint.sqlite.store import SQLiteCheckpointer


class Points:
    """Counts the places where dying could matter, and dies at one of them."""

    def __init__(self, dies_at: int | None) -> None:
        self._dies_at = dies_at
        self.names: list[str] = []

    def pass_by(self, name: str) -> None:
        self.names.append(name)
        if len(self.names) - 1 == self._dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, owner: Any, name: str, is_counted: Callable[..., bool] = lambda *_: True) -> None:
        original = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if not is_counted(*args):
                return original(*args, **kwargs)
            self.pass_by(f"before {name}")
            result = original(*args, **kwargs)
            self.pass_by(f"after {name}")
            return result

        setattr(owner, name, wrapped)


def play(folder: Path, model: str, dies_at: int | None) -> dict[str, Any]:
    points = Points(dies_at)
    points.around(SQLiteCheckpointer, "append")
    points.around(disk.WholeFileBackend, "write")
    points.around(disk.WholeFileBackend, "edit")
    calls = folder / "model-calls"
    answer = simulated.SimulatedChatModel._answer

    def counted(*args: Any) -> Any:
        with calls.open("a") as file:
            file.write("x")
        return answer(*args)

    simulated.SimulatedChatModel._answer = counted  # type: ignore[method-assign]  # this process is for one try
    phase = Phase(folder, model)
    messages = asyncio.run(phase.play())
    events = phase.events()
    return {
        "points": points.names,
        "files": digest(phase.files()),
        "artifact": phase.files()[ARTIFACT],
        "messages": essence(messages),
        "steps": sorted(outcomes(events)),
        "calls": len(calls.read_text()),
        "in_flight": sum(e.kind == "tool.unknown" and "/m" in e.payload["key"] for e in events),
    }


def in_fork(work: Callable[[], Any]) -> tuple[int, Any]:
    """Do `work` in a child; return how it ended and what it made."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            with os.fdopen(writer, "w") as pipe:
                json.dump(work(), pipe)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), json.loads(text) if text else None


def answer(order: dict[str, Any], play: Callable[[Path, str, int | None], dict[str, Any]]) -> dict[str, Any]:
    folder, model = Path(order["folder"]), order["model"]
    Phase(folder).prepare()
    deaths = [in_fork(lambda at=dies_at: play(folder, model, at))[0] for dies_at in order["dies_at"]]
    code, result = in_fork(lambda: play(folder, model, None))
    return {"deaths": deaths, "code": code, "result": result}


def main(play: Callable[[Path, str, int | None], dict[str, Any]] = play) -> None:
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line), play)), flush=True)


if __name__ == "__main__":
    main()
