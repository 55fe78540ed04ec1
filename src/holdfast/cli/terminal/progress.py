"""What a person sees while a run goes on: a live tree on a terminal, else a line for each thing worth knowing.

Both come from the journal itself, so they are the same in every process and after a replay.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any

from holdfast.cli.terminal.output import say
from holdfast.cli.terminal.run_view import RunView, describe_call
from holdfast.runtime.events import Event
from holdfast.runtime.journal import Journal
from holdfast.runtime.stores import open_journal

if TYPE_CHECKING:
    from holdfast.runtime.checkpoint.base import JournalStore


def can_draw() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


@contextlib.asynccontextmanager
async def shown_progress(
    store: "JournalStore", run_id: str, *, phase_keys: Iterable[str], after: int = 0
) -> AsyncIterator[RunView]:
    """Show what happens in a run until the block is left; what was committed by then is shown.

    The lines begin after `after`; the tree knows the whole run.
    """
    view = RunView.of(run_id, phase_keys)
    async with open_journal(store) as journal:
        tell = _draw_nothing if can_draw() else _tell_after(after)
        with _live(view) if can_draw() else contextlib.nullcontext():
            following = asyncio.create_task(_follow(journal, view, tell))
            try:
                yield view
            finally:
                following.cancel()
                with contextlib.suppress(Exception):
                    for event in await journal.read(run_id, view.last_seq):
                        tell(event)
                        view.apply(event)


def give_notice(view: RunView, text: str) -> None:
    """Tell a person something in between: as a part of the tree where there is one, for it would be drawn over."""
    if can_draw():
        view.notice = text
    else:
        say(text)


async def _follow(journal: Journal, view: RunView, tell: Callable[[Event], None]) -> None:
    async for event in journal.follow(view.run_id):
        tell(event)
        view.apply(event)


def _live(view: RunView) -> Any:
    from holdfast.cli.terminal.live_tree import open_live

    return open_live(view)


def _draw_nothing(event: Event) -> None:
    pass


def _tell_after(after: int) -> Callable[[Event], None]:
    def tell(event: Event) -> None:
        if event.seq > after and (line := to_line(event)):
            say(line)

    return tell


def to_line(event: Event) -> str | None:
    """One event for a person; `None` if it says nothing they would ask for."""
    payload = event.payload
    phase = str(payload.get("phase") or event.lane_id.partition("/")[0])
    lines: dict[str, str] = {
        "run.created": f"run {event.run_id}",
        "run.started": "● run started",
        "run.resumed": "● run resumed",
        "phase.skipped": f"↷ {phase}: done before, not repeated",
        "phase.started": f"● {phase}: started",
        "artifact.accepted": f"  {phase}: artifact is valid",
        "artifact.rejected": f"  {phase}: artifact is not right, the agent corrects it",
        "phase.completed": f"✓ {phase}: completed",
        "phase.failed": f"✕ {phase}: {_error(payload)}",
        "phase.reopened": f"↻ {phase}: another attempt",
        "human.approval.requested": f"◔ {phase}: waits for a person",
        "human.approval.received": f"  answered: {payload.get('action')} by {payload.get('by') or 'someone'}",
        "budget.exhausted": f"◔ {payload.get('message')}",
        "budget.raised": f"  the budget was raised by ${int(payload.get('amount_micros') or 0) / 1_000_000:.2f}",
        "run.changed": f"  {_describe_change(payload)}",
        "run.pause.requested": "  someone asked for a pause",
        "run.paused": f"◔ run paused ({payload.get('reason')})",
        "run.failed": f"✕ run failed: {_error(payload)}",
        "run.cancelled": "⊘ run cancelled",
        "run.completed": "✓ run completed",
    }
    if event.kind == "agent.progress" and payload.get("stalled"):
        return f"◔ {payload['stalled']}"
    if event.kind in ("tool.result", "tool.started"):
        return _tool_line(event)
    return lines.get(event.kind)


def _tool_line(event: Event) -> str | None:
    if not event.payload.get("tool") or (event.kind != "tool.started" and event.payload.get("attempt")):
        return None
    return f"    {describe_call(event.payload)}"


def _describe_change(payload: dict[str, Any]) -> str:
    personas = payload.get("personas") if isinstance(payload.get("personas"), dict) else {}
    parts = ["the requirements"] if "requirements_md" in payload else []
    parts += [f"{role} is {one.get('name')}" for role, one in (personas or {}).items() if isinstance(one, dict)]
    return f"changed by {payload.get('by') or 'someone'}: {', '.join(parts)}"


def _error(payload: dict[str, Any]) -> str:
    error = payload.get("error")
    return str(error.get("message", "")) if isinstance(error, dict) else str(error or "")
