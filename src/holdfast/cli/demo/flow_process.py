"""The demo's flow and the process that runs it: five nodes, whose work is real files in the working folder.

The process tells its parent what happens, one JSON line each. The parent only watches, kills and counts.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, Literal

from holdfast import Context, Done, NotDone, RunPaused, run_flow, step_key

RUN_ID = "demo"
STORE = "holdfast.db"
LEDGER = "effects.log"
FEATURE = "a to-do list"
KILLED_IN = "implement.store"
FILES = {
    "spec": "spec.md",
    "plan": "plan.md",
    "implement.list": "todo.py",
    "implement.store": "store.py",
    "implement.tests": "test_todo.py",
    "review": "review.md",
    "publish": "release.txt",
}
_ANSWER_S = 10.0  # how long the call in KILLED_IN goes on after its effect; its process is killed meanwhile


async def deliver(ctx: Context, feature: str, pace_s: float) -> dict[str, Any]:
    """Take a feature through spec, plan, implement, review and publish; each step writes a file and a ledger line."""
    do = _Desk(ctx, pace_s).do
    await do("spec", f"build {feature}")
    await do("plan", "list, store, tests")
    for part in ("list", "store", "tests"):
        await do(f"implement.{part}", f"the {part} of {feature}", on_unknown="look")
    review = await do("review", "nothing to object to")
    decision = await ctx.approval("publish", show=review)
    await do("publish", f"{feature}, approved by {decision.by}", on_unknown="ask")
    return {"feature": feature, "files": len(FILES)}


class _Desk:
    """Does the steps of one run in this process, and tells which of them were called here."""

    def __init__(self, ctx: Context, pace_s: float) -> None:
        self._ctx = ctx
        self._pace_s = pace_s

    async def do(self, key: str, text: str, *, on_unknown: Literal["rerun", "ask", "look"] = "rerun") -> str:
        outcome = "replayed"

        async def work() -> str:
            nonlocal outcome
            outcome = "called"
            await asyncio.sleep(self._pace_s)
            Path(FILES[key]).write_text(f"{text}\n")
            _add_to_ledger(FILES[key])
            _tell("effect", key)
            if key == KILLED_IN:
                await asyncio.sleep(_ANSWER_S)
            return text

        async def look(idempotency_key: str) -> Done | NotDone:
            nonlocal outcome
            if not _is_in_ledger(idempotency_key):
                return NotDone()
            outcome = "found"
            return Done(text)

        result: str = await self._ctx.step(key, work, on_unknown=look if on_unknown == "look" else on_unknown)
        _tell(outcome, key)
        return result


def _add_to_ledger(file_name: str) -> None:
    with Path(LEDGER).open("a") as ledger:
        ledger.write(f"{step_key()} {os.getpid()} {file_name}\n")


def _is_in_ledger(idempotency_key: str) -> bool:
    return any(line.split(" ")[0] == idempotency_key for line in Path(LEDGER).read_text().splitlines())


def _tell(fact: str, key: str = "", **details: Any) -> None:
    sys.stdout.write(json.dumps({"fact": fact, "key": key, **details}) + "\n")
    sys.stdout.flush()


async def _run(pace_s: float) -> None:
    _tell("started", pid=os.getpid())
    try:
        result = await run_flow(deliver, FEATURE, pace_s, run_id=RUN_ID, store=STORE)
    except RunPaused as paused:
        _tell("paused", paused.key)
    else:
        _tell("completed", result=result)


if __name__ == "__main__":
    asyncio.run(_run(float(sys.argv[1])))
