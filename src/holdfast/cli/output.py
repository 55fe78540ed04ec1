"""How commands speak: one JSON document or text on standard output, progress for people on standard error."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from holdfast.engine.results import RunResult
from holdfast.enums import RunStatus

EXIT_DONE, EXIT_FAILED, EXIT_WAITING = 0, 1, 3
MARKS = {
    "completed": "✓",
    "failed": "✕",
    "running": "●",
    "paused": "◔",
    "awaiting_approval": "◔",
    "cancelled": "⊘",
    "pending": "○",
    "skipped": "↷",
}


def print_json(data: Any) -> None:
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def say(text: str = "") -> None:
    """Tell a person something without getting in the way of what a program reads."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def to_json(result: RunResult) -> dict[str, Any]:
    return {
        "run_id": str(result.run_id),
        "state": result.state.value,
        "phases": [
            {"key": phase.key, "state": phase.state.value, "attempts": phase.attempts, "artifact": phase.artifact}
            for phase in result.phases
        ],
        "cost_usd": result.cost_usd,
        "final_report_path": result.final_report_path,
        "error": result.error.to_dict() if result.error else None,
    }


def exit_code(state: RunStatus) -> int:
    if state is RunStatus.PAUSED:
        return EXIT_WAITING
    return EXIT_DONE if state is RunStatus.COMPLETED else EXIT_FAILED


def finish(result: RunResult, *, is_json: bool) -> int:
    """Show where a run stands after a command, and return the exit code that says the same."""
    if is_json:
        print_json(to_json(result))
    else:
        show_result(result)
    return exit_code(result.state)


def show_result(result: RunResult) -> None:
    rows = [
        [
            MARKS.get(phase.state.value, " "),
            phase.key,
            phase.state.value.replace("_", " "),
            _tries(phase.attempts),
            phase.artifact or "",
        ]
        for phase in result.phases
    ]
    print(table(rows))  # noqa: T201 - standard output is what this is for
    print(f"\n{MARKS[result.state.value]} {result.state.value} · ${result.cost_usd:.4f} · run {result.run_id}")  # noqa: T201
    if result.error:
        print(f"  {result.error.code}: {result.error.message}\n  {result.error.hint}".rstrip())  # noqa: T201
    print(_next_step(result))  # noqa: T201


def _tries(attempts: int) -> str:
    return f"×{attempts}" if attempts > 1 else ""


def _next_step(result: RunResult) -> str:
    run_id = str(result.run_id)[:8]
    if result.state is RunStatus.PAUSED and result.waiting_for == "budget":
        return f"  It needs more money: holdfast budget {run_id} --add USD, then holdfast resume {run_id}"
    if result.state is RunStatus.PAUSED:
        return f"  It waits for you: holdfast approvals, then holdfast approve ID, then holdfast resume {run_id}"
    if result.state is RunStatus.COMPLETED:
        return f"  See it: holdfast runs diff {run_id}   Take it: holdfast merge {run_id}"
    if result.state is RunStatus.FAILED:
        return f"  Look: holdfast runs show {run_id}   Try again: holdfast retry {run_id}"
    return f"  Report: {result.final_report_path}" if result.final_report_path else ""


def table(rows: Sequence[Sequence[str]], *, headings: Sequence[str] = ()) -> str:
    """Columns as wide as they need to be; plain text, so that pipes and narrow terminals are no special case."""
    everything = [list(headings), *[list(row) for row in rows]] if headings else [list(row) for row in rows]
    if not everything:
        return ""
    widths = [max(len(row[column]) for row in everything) for column in range(len(everything[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in everything
    )
