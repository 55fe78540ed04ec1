"""What a person sees while a run goes on: one line for each thing worth knowing, from the journal itself."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from holdfast.cli.output import say
from holdfast.persistence.db import Database
from holdfast.runtime.events import Event
from holdfast.runtime.stores import open_journal


@contextlib.asynccontextmanager
async def shown_progress(db: Database, run_id: str, *, after: int = 0) -> AsyncIterator[None]:
    """Say what happens in a run until the block is left; what was committed by then is said."""
    async with open_journal(db.store) as journal:
        seen = after

        async def follow() -> None:
            nonlocal seen
            async for event in journal.follow(run_id, after):
                seen = event.seq
                _tell(event)

        task = asyncio.create_task(follow())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            with contextlib.suppress(Exception):
                for event in await journal.read(run_id, seen):
                    _tell(event)


def _tell(event: Event) -> None:
    if line := to_line(event):
        say(line)


def to_line(event: Event) -> str | None:
    """One event for a person; `None` if it says nothing they would ask for."""
    payload = event.payload
    phase = str(payload.get("phase", ""))
    lines: dict[str, str] = {
        "run.started": "● run started",
        "run.resumed": "● run resumed",
        "phase.skipped": f"↷ {phase}: done before, not repeated",
        "phase.started": f"● {phase}: started",
        "artifact.accepted": f"  {phase}: artifact is valid",
        "artifact.rejected": f"  {phase}: artifact is not right, the agent mends it",
        "phase.completed": f"✓ {phase}: completed",
        "phase.failed": f"✕ {phase}: {_error(payload)}",
        "phase.reopened": f"↻ {phase}: another attempt",
        "human.approval.requested": f"◔ {phase}: waits for a person",
        "human.approval.received": f"  answered: {payload.get('action')} by {payload.get('by') or 'someone'}",
        "budget.exhausted": f"◔ {payload.get('message')}",
        "run.paused": f"◔ run paused ({payload.get('reason')})",
        "run.failed": f"✕ run failed: {_error(payload)}",
        "run.cancelled": "⊘ run cancelled",
        "run.completed": "✓ run completed",
    }
    if event.kind in ("tool.result", "tool.started"):
        return _tool_line(event)
    return lines.get(event.kind)


def _tool_line(event: Event) -> str | None:
    tool = event.payload.get("tool")
    if not tool or (event.kind != "tool.started" and event.payload.get("attempt")):
        return None
    args: Any = event.payload.get("args") or {}
    target = args.get("file_path") or args.get("path") or args.get("pattern") if isinstance(args, dict) else ""
    argv = event.payload.get("argv")
    return f"    {tool} {target or (' '.join(argv) if isinstance(argv, list) else '')}".rstrip()


def _error(payload: dict[str, Any]) -> str:
    error = payload.get("error")
    return str(error.get("message", "")) if isinstance(error, dict) else str(error or "")
