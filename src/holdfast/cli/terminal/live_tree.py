"""The live tree of a run on a terminal. It is drawn over itself on standard error and leaves nothing behind."""

import os
import time
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from holdfast.cli.terminal.output import MARKS
from holdfast.cli.terminal.run_view import PhaseView, RunView
from holdfast.enums import RunPhaseState
from holdfast.presentation.format import cost, exact_money
from holdfast.runtime.run_fold.payload_text import phase_status

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_STYLES = {
    "completed": "green",
    "failed": "red",
    "running": "cyan",
    "paused": "yellow",
    "awaiting_approval": "yellow",
    "cancelled": "dim",
    "pending": "dim",
    "stopped": "dim",
}
_PER_SECOND = 8


def open_live(view: RunView, console: Console | None = None) -> Live:
    """Open a display that draws the view as it is now, again and again until it is stopped."""
    console = console or Console(stderr=True, highlight=False, no_color=bool(os.environ.get("NO_COLOR")))
    return Live(
        console=console,
        get_renderable=lambda: draw(view, time.time()),
        refresh_per_second=_PER_SECOND,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )


def draw(view: RunView, now: float) -> Group:
    """Draw the whole tree; every line is cut to the terminal's width, so that drawing it again never scrolls."""
    lines: list[Any] = [_headline(view)]
    width = max((len(key) for key in view.phases), default=0)
    for phase in view.phases.values():
        lines += _phase_lines(view, phase, width, now)
    if view.notice:
        lines.append(_line((view.notice, "yellow")))
    return Group(*lines)


def _headline(view: RunView) -> Text:
    state = f"{view.state} ({view.reason})" if view.reason else view.state
    money = view.trace.money
    reserved_usd = 0.0 if money.is_simulated else money.reserved_micros / 1_000_000
    total_usd = money.cost_micros / 1_000_000
    spent = cost(*((0.0, total_usd) if money.is_simulated else (total_usd, 0.0)), reserved_usd, show=exact_money)
    return _line(
        (view.workflow or "run", "bold"),
        (f"  {view.run_id[:8]}  ", "dim"),
        (state, _STYLES.get(view.state, "")),
        f"  {spent}",
        (f" of ${money.limit_micros / 1_000_000:.2f}" if money.limit_micros is not None else "", "dim"),
    )


def _phase_lines(view: RunView, phase: PhaseView, width: int, now: float) -> list[Text]:
    status = phase_status(phase.state, view.state)
    style = _STYLES.get(status, "")
    is_working = view.is_working(phase.key)
    mark = _FRAMES[int(now * _PER_SECOND) % len(_FRAMES)] if is_working else MARKS.get(status, " ")
    elapsed, cost_micros = view.worked_s(phase.key, now), view.trace.money.phase_micros(phase.key)
    head = _line(
        (f"  {mark} {phase.key.ljust(width)}  ", style),
        (_clock(elapsed) if elapsed or is_working else "    ", ""),
        (f"  ${cost_micros / 1_000_000:.4f}" if cost_micros else "         ", "dim"),
        (f"  ×{phase.attempt}" if phase.attempt > 1 else "", "yellow"),
        (f"  {phase.note}" if phase.note else "", "red" if phase.state == RunPhaseState.FAILED else "dim"),
    )
    if not is_working:
        return [head]
    call = ", then ".join(filter(None, (phase.call, phase.model and f"asks {phase.model}")))
    return [head, *(_line((f"      {sign} {text}", "dim")) for sign, text in (("→", call), ("“", phase.text)) if text)]


def _line(*pieces: Any) -> Text:
    text = Text.assemble(*pieces, no_wrap=True, overflow="ellipsis")
    text.rstrip()
    return text


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
