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
from holdfast.cli.terminal.run_view import RunView
from holdfast.images import read_labels
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.journal import Journal
from holdfast.runtime.run_fold.call_line import describe_call
from holdfast.runtime.stores import open_journal

if TYPE_CHECKING:
    from holdfast.runtime.checkpoint.base import JournalStore


def can_draw() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


@contextlib.asynccontextmanager
async def progress_display(
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
    """Describe an event to a person in a line; `None` if it says nothing they would ask for."""
    payload = event.payload
    phase = str(payload.get("phase") or event.lane_id.partition("/")[0])
    lines: dict[str, str] = {
        EventKind.RUN_CREATED: f"run {event.run_id}",
        EventKind.RUN_STARTED: "● run started",
        EventKind.RUN_RESUMED: "● run resumed",
        EventKind.PHASE_SKIPPED: f"↷ {phase}: done before, not repeated",
        EventKind.PHASE_STARTED: f"● {phase}: started{_describe_rescue(payload)}",
        EventKind.ARTIFACT_ACCEPTED: f"  {phase}: artifact is valid",
        EventKind.ARTIFACT_REJECTED: f"  {phase}: artifact is not right, the agent corrects it",
        EventKind.PHASE_COMPLETED: f"✓ {phase}: completed",
        EventKind.PHASE_FAILED: f"✕ {phase}: {_error(payload)}",
        EventKind.PHASE_REOPENED: f"↻ {phase}: another attempt",
        EventKind.HUMAN_APPROVAL_REQUESTED: f"◔ {phase}: waits for a person",
        EventKind.HUMAN_APPROVAL_RECEIVED: f"  answered: {payload.get('action')} by {payload.get('by') or 'someone'}",
        EventKind.BUDGET_EXHAUSTED: f"◔ {payload.get('message')}",
        EventKind.BUDGET_RAISED: f"  the budget was raised by ${_usd(payload.get('amount_micros')):.2f}",
        EventKind.RUN_CHANGED: f"  {_describe_change(payload)}",
        EventKind.RUN_PAUSE_REQUESTED: "  someone asked for a pause",
        EventKind.RUN_PAUSED: f"◔ run paused ({payload.get('reason')})",
        EventKind.RUN_FAILED: f"✕ run failed: {_error(payload)}",
        EventKind.RUN_CANCELLED: "⊘ run cancelled",
        EventKind.RUN_COMPLETED: "✓ run completed",
    }
    if event.kind == EventKind.AGENT_PROGRESS and payload.get("stalled"):
        return f"◔ {payload['stalled']}"
    if event.kind in (EventKind.TOOL_RESULT, EventKind.TOOL_STARTED):
        return _tool_line(event)
    return lines.get(event.kind)


def _tool_line(event: Event) -> str | None:
    if not event.payload.get("tool") or (event.kind != EventKind.TOOL_STARTED and event.payload.get("attempt")):
        return None
    return f"    {describe_call(event.payload)}"


def _describe_change(payload: dict[str, Any]) -> str:
    personas = payload.get("personas") if isinstance(payload.get("personas"), dict) else {}
    parts = ["the requirements"] if "requirements_md" in payload else []
    parts += [str(label) for label in read_labels(payload.get("images"))]
    parts += [f"{role} is {one.get('name')}" for role, one in (personas or {}).items() if isinstance(one, dict)]
    parts += ["commands run without a sandbox"] if payload.get("unsandboxed") else []
    restored = payload.get("restored")
    parts += [f"the files are those before event {restored.get('before')}"] if isinstance(restored, dict) else []
    return f"changed by {payload.get('by') or 'someone'}: {', '.join(parts)}"


def _describe_rescue(payload: dict[str, Any]) -> str:
    result = payload.get("result")
    ref = result.get("rescue_ref") if isinstance(result, dict) else None
    return f"\n  what lay in the worktree is kept under {ref}" if ref else ""


def _usd(micros: Any) -> float:
    return int(micros or 0) / 1_000_000


def _error(payload: dict[str, Any]) -> str:
    error = payload.get("error")
    return str(error.get("message", "")) if isinstance(error, dict) else str(error or "")
