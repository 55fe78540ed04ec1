"""Short texts for what payloads and rows hold: an error, a phase's state, a limit.

Rule: it imports nothing but enums, for listings that must be fast use it.
"""

from collections.abc import Mapping
from typing import Any

from holdfast.enums import RunPhaseState, RunStatus

_TERMINAL = {status for status in RunStatus if status.is_terminal}


def advise_on_budget(run_id: str, exhausted: Mapping[str, Any]) -> str:
    """Say what to do about the limit that was hit, with the command; `exhausted` is its event's payload."""
    short = run_id[:8]
    if exhausted.get("limit") == "day":
        raised = "raise day_budget_usd in the settings (or HOLDFAST_DAY_BUDGET_USD)"
        if exhausted.get("for_all"):
            raised = "holdfast limits set day USD"
        return f"Tomorrow (UTC): holdfast resume {short}. Sooner: {raised} and holdfast resume {short}"
    amounts = [exhausted.get(name) for name in ("spent_micros", "needed_micros", "limit_micros")]
    spent, needed, limit = (int(amount) if isinstance(amount, int | float) else 0 for amount in amounts)
    cents = max(1, -(-(spent + needed - limit) // 10_000))
    of_phase = "the phase" if exhausted.get("limit") == "phase" else "the run"
    return f"Give {of_phase} more: holdfast budget {short} --add {cents / 100:.2f}, then holdfast resume {short}"


def first_line(text: Any, most: int = 140) -> str:
    line = str(text or "").strip().partition("\n")[0].lstrip("#").strip()
    return f"{line[: most - 1]}…" if len(line) > most else line


def error_text(error: Any) -> str:
    """Return what an error says, in whichever form it was recorded."""
    if not error:
        return ""
    if isinstance(error, dict):
        return str(error.get("message") or error.get("detail") or error.get("code") or error)
    return str(error)


def phase_status(state: str, run_state: str, *, is_driven: bool = True) -> str:
    """Return a phase's state as people read it: none is running in a run that is over, paused or interrupted."""
    if run_state in _TERMINAL and state in (RunPhaseState.RUNNING, RunPhaseState.AWAITING_APPROVAL):
        return "stopped"
    if state == RunPhaseState.RUNNING and run_state == RunStatus.PAUSED:
        return "paused"
    return "interrupted" if state == RunPhaseState.RUNNING and not is_driven else state
