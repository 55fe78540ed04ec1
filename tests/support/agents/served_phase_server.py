"""As `phase_server`, with a phase whose model is a server in another process: the real client, over real HTTP."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.support.agents.phase import Phase, digest, essence, outcomes
from tests.support.agents.phase_server import Points, in_fork
from tests.support.agents.served_phase import KEY, KEY_VARIABLE, ServedPhase

import holdfast.agents.tools.files as disk
from holdfast.runtime.checkpoint.sqlite.store import SQLiteCheckpointer


def play(folder: Path, address: str, dies_at: int | None) -> dict[str, Any]:
    os.environ[KEY_VARIABLE] = KEY
    points = Points(dies_at)
    points.around(SQLiteCheckpointer, "append")
    points.around(disk.WholeFileBackend, "write")
    points.around(disk.WholeFileBackend, "edit")
    phase = ServedPhase(folder, address=address, fallback_models=("second",))
    messages = asyncio.run(phase.play(text="Do the work."))
    events = phase.events()
    return {
        "points": points.names,
        "files": digest(phase.files()),
        "messages": essence(messages),
        "steps": sorted(outcomes(events)),
        "failures": sorted(
            (e.payload["key"], e.payload.get("attempt", 1), e.payload["error"]["code"])
            for e in events
            if e.kind == "model.error"
        ),
        "in_flight": sum(e.kind == "tool.unknown" and ".t" not in e.payload["key"].rpartition("/")[2] for e in events),
    }


def answer(order: dict[str, Any]) -> dict[str, Any]:
    folder, address = Path(order["folder"]), order["address"]
    Phase(folder).prepare()
    deaths = [in_fork(lambda at=dies_at: play(folder, address, at))[0] for dies_at in order["dies_at"]]
    code, result = in_fork(lambda: play(folder, address, None))
    return {"deaths": deaths, "code": code, "result": result}


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
