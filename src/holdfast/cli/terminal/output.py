"""How commands speak: one JSON document or text on standard output, progress for people on standard error.

Plain escape codes, not rich: a listing must start as fast as the program itself.
"""

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.enums import PauseReason, RunStatus

if TYPE_CHECKING:
    from holdfast.engine.results import RunResult

EXIT_DONE, EXIT_FAILED, EXIT_WAITING, EXIT_INTERRUPTED = 0, 1, 3, 130
_LEAST_ELASTIC = 28
_NARROW = 80
MARKS = {
    "completed": "✓",
    "failed": "✕",
    "running": "●",
    "paused": "◔",
    "awaiting_approval": "◔",
    "cancelled": "⊘",
    "pending": "○",
    "skipped": "↷",
    "stopped": "⊘",
    "interrupted": "◔",
}
TONES = {
    "completed": "32",
    "failed": "31",
    "running": "36",
    "paused": "33",
    "awaiting_approval": "33",
    "cancelled": "2",
    "pending": "2",
    "stopped": "2",
    "interrupted": "33",
    "bold": "1",
    "dim": "2",
}
_DIFF_TONES = {"+": "32", "-": "31", "@": "36"}


class Cell(NamedTuple):
    """A table's cell with a tone: a state's word, `bold` or `dim`."""

    text: str
    tone: str


def has_colour(stream: Any) -> bool:
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, tone: str, stream: Any = None) -> str:
    code = TONES.get(tone)
    return f"\x1b[{code}m{text}\x1b[0m" if code and has_colour(stream or sys.stdout) else text


def paint_diff(text: str) -> str:
    """Colour the lines of a diff, whatever they are printed to."""
    lines = []
    for line in text.splitlines():
        code = "1" if line.startswith(("diff ", "+++", "---")) else _DIFF_TONES.get(line[:1])
        lines.append(f"\x1b[{code}m{line}\x1b[0m\n" if code else f"{line}\n")
    return "".join(lines)


def plain(text: str) -> str:
    """Replace everything a terminal would obey in a text that an agent wrote, or would show in another order."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "\ufffd" for letter in text)


def to_json_text(data: Any, *, indent: int | None = None) -> str:
    """Write data as JSON; what a terminal would obey, and what no text can hold, is written as its escape."""
    text = json.dumps(data, indent=indent, ensure_ascii=False)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter == "\n" else json.dumps(letter)[1:-1] for letter in text)


def print_json(data: Any) -> None:
    sys.stdout.write(to_json_text(data, indent=2) + "\n")


def print_text(text: str = "") -> None:
    sys.stdout.write(f"{text}\n")


def say(text: str = "") -> None:
    """Tell a person something without getting in the way of what a program reads, or of the run if nobody reads."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def folded(text: str) -> str:
    """Indent a sentence or two and break them between words where the terminal ends."""
    import textwrap

    room = max(shutil.get_terminal_size().columns - 1, 20)
    return textwrap.fill(
        text, room, initial_indent="  ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def to_json(result: "RunResult") -> dict[str, Any]:
    return {
        "run_id": str(result.run_id),
        "state": result.state.value,
        "phases": [
            {"key": phase.key, "state": phase.state.value, "attempts": phase.attempts, "artifact": phase.artifact}
            for phase in result.phases
        ],
        "cost_usd": result.cost_usd,
        "perhaps_paid_usd": result.perhaps_paid_usd,
        "simulated_usd": result.simulated_usd,
        "final_report_path": result.final_report_path,
        "error": result.error.to_dict() if result.error else None,
    }


def exit_code(state: str) -> int:
    """Return the exit code that says how a run stands."""
    if not RunStatus(state).is_terminal:
        return EXIT_WAITING
    return EXIT_DONE if state == RunStatus.COMPLETED else EXIT_FAILED


def finish(result: "RunResult", *, is_json: bool, is_interrupted: bool = False) -> int:
    """Show where a run stands after a command, and return the exit code that says the same, or that Ctrl-C ended it."""
    if is_json:
        print_json(to_json(result))
    else:
        show_result(result)
    return EXIT_INTERRUPTED if is_interrupted else exit_code(result.state.value)


def show_detached(run_id: str, state: str, *, is_shared: bool, is_json: bool, due_at: str | None = None) -> None:
    """Say who takes a run that is not driven here, and how to watch it."""
    if is_json:
        print_json({"run_id": run_id, "state": state})
    from holdfast.presentation.format import moment

    who = "a worker" if is_shared else "holdfast serve"
    say(f"Run {run_id} waits for {who}{f', which starts it at {moment(due_at)}' if due_at else ''}.")
    say(f"Watch it: holdfast runs watch {run_id[:8]}   Drive it here: holdfast resume {run_id[:8]}")


def show_waiting(result: "RunResult", *, is_json: bool) -> int:
    """Show what a run that is left to others needs first, as `finish` shows it of one that is driven here."""
    from holdfast.cli.terminal.approval_text import summarize_approval
    from holdfast.persistence.raw_sql import read_approvals

    run_id, state = str(result.run_id), result.state.value
    if is_json:
        print_json({"run_id": run_id, "state": state})
    for row in read_approvals(run_id, state="pending"):
        say(f"Run {run_id} waits for an answer: {summarize_approval(row)}")
    say(next_step(run_id, state, result.waiting_for, None, exhausted=result.exhausted))
    return exit_code(state)


def show_result(result: "RunResult") -> None:
    from holdfast.runtime.run_fold.payload_text import phase_status

    state = result.state.value
    perhaps_paid = result.perhaps_paid_usd
    spent = describe_cost(result.cost_usd, result.simulated_usd, perhaps_paid, perhaps_paid)
    print_text(f"{mark(state)} {state} · {spent} · run {result.run_id}")
    phases = [vars(phase) | {"status": phase_status(phase.state.value, state)} for phase in result.phases]
    print_text(table([phase_row(phase) for phase in phases]))
    if result.error:
        print_text(plain(f"  {result.error.code}: {result.error.message}\n  {result.error.hint}".rstrip()))
    following = next_step(
        str(result.run_id), state, result.waiting_for, result.final_report_path, exhausted=result.exhausted
    )
    if following:
        print_text(f"\n{following}")


def mark(state: str) -> str:
    return paint(MARKS.get(state, " "), state)


def phase_row(phase: dict[str, Any]) -> list[str | Cell]:
    """Return a phase with its status, tries, and error or artifact, as columns of a table."""
    error = phase.get("error")
    message = error.get("message", "") if isinstance(error, dict) else getattr(error, "message", "")
    status = phase["status"]
    tries = f"×{phase['attempts']}" if phase["attempts"] > 1 else ""
    return [
        Cell(f"  {MARKS.get(status, ' ')} {phase['key']}", status),
        status.replace("_", " "),
        tries,
        Cell(message or phase["artifact"] or "", "dim"),
    ]


def describe_cost(real_usd: float, simulated_usd: float, reserved_usd: float = 0.0, unanswered_usd: float = 0.0) -> str:
    """Return money as `cost` does, with four digits; a rehearsal says that it is one."""
    from holdfast.presentation.format import cost, exact_money

    text = cost(real_usd, simulated_usd, reserved_usd, unanswered_usd, show=exact_money)
    return f"rehearsal, {text}" if simulated_usd and not real_usd else text


def next_step(
    run_id: str,
    state: str,
    waiting_for: str | None,
    report: str | None,
    *,
    exhausted: Mapping[str, Any] | None = None,
) -> str:
    """Say what a person does next, as commands to copy; `exhausted` is which limit a run without money has hit."""
    short = run_id[:8]
    if state == RunStatus.PAUSED and waiting_for == PauseReason.BUDGET:
        from holdfast.runtime.run_fold.payload_text import advise_on_budget

        return advise_on_budget(run_id, exhausted or {})
    if state == RunStatus.PAUSED and waiting_for in (PauseReason.APPROVAL, PauseReason.OUTCOME):
        approval = _find_waiting(run_id)
        subject = approval or short
        answer = f"Then: holdfast approve {approval or 'ID'}, and holdfast resume {short}"
        return f"It waits for you: holdfast approvals show {subject}\n{answer}"
    if state == RunStatus.PAUSED and waiting_for == PauseReason.STALLED:
        return f"Let it go on: holdfast resume {short}   Give up: holdfast abort {short}"
    if state == RunStatus.PAUSED and waiting_for == PauseReason.MESSAGE:
        return f"It waits for what you say next: holdfast --resume {short}"
    if state in (RunStatus.PAUSED, RunStatus.RUNNING):
        return f"Go on: holdfast resume {short}"
    if state == RunStatus.COMPLETED:
        return f"See it: holdfast runs diff {short}   Take it: holdfast merge {short}\nReport: {_describe_file(report)}"
    if state == RunStatus.FAILED:
        return f"Look: holdfast runs show {short}   Try again: holdfast retry {short}"
    return f"Report: {_describe_file(report)}" if report else ""


def _describe_file(path: str | None) -> str:
    """Name a file that may be on the machine of whichever worker wrote it; its content is in the database too."""
    return f"{path}{'' if path is None or Path(path).exists() else ', where the run was driven'}"


def _find_waiting(run_id: str) -> str:
    """Return the beginning of the id of the one approval that a run waits for; nothing if there are several."""
    from holdfast.persistence.raw_sql import read_approvals

    rows = read_approvals(run_id, state="pending")
    return str(rows[0]["approval_id"])[:8] if len(rows) == 1 else ""


@contextlib.contextmanager
def waiting_notice(text: str) -> Iterator[None]:
    """Say on a terminal that something takes a moment, and wipe that away when it is over."""
    is_visible = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    if is_visible:
        sys.stderr.write(paint(text, "dim", sys.stderr))
        sys.stderr.flush()
    try:
        yield
    finally:
        if is_visible:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def table(
    rows: Sequence[Sequence[str | Cell]],
    *,
    headings: Sequence[str] = (),
    elastic: int | Sequence[int] = (),
    optional: int = 0,
    stacked: int = 0,
) -> str:
    """Lay rows out in columns. On a terminal lines are cut to its width; in a pipe nothing is lost.

    The `elastic` columns give up room first, in this order, so that those behind them stay readable; of the last
    columns as many as are `optional` are left out where there is still no room for them. With `stacked`, a narrow
    terminal gets so many cells of a row on its first line, the next one on the second, and the others below it.
    """
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    cells = [[_to_cell(cell) for cell in row] for row in rows]
    if stacked and room is not None and room < _NARROW:
        return "\n".join(_stack(row, stacked, room) for row in cells)
    lines = [[Cell(heading, "dim") for heading in headings]] if headings else []
    lines += cells
    if not lines:
        return ""
    widths = [max(len(row[column].text) for row in lines) for column in range(len(lines[0]))]
    if room is not None:
        widths = _fit(widths, room, (elastic,) if isinstance(elastic, int) else elastic, optional)
        lines = [[_cut(cell, width) for cell, width in zip(row, widths, strict=False)] for row in lines]
    return "\n".join(_to_line(row, widths, room) for row in lines)


def _to_cell(cell: str | Cell) -> Cell:
    return Cell(plain(cell), "") if isinstance(cell, str) else Cell(plain(cell.text), cell.tone)


def _stack(cells: Sequence[Cell], count: int, room: int) -> str:
    """Write a row over several lines, so that nothing of it is cut off."""
    import textwrap

    lines = ["  ".join(paint(cell.text, cell.tone) for cell in cells[:count] if cell.text)]
    rest = " · ".join(cell.text for cell in cells[count + 1 :] if cell.text)
    for cell in (*cells[count : count + 1], Cell(rest, "dim")):
        wrapped = textwrap.wrap(cell.text, max(room - 1, 20), initial_indent="    ", subsequent_indent="      ")
        lines += [paint(line, cell.tone) for line in wrapped]
    return "\n".join(lines)


def _fit(widths: Sequence[int], room: int, elastic: Sequence[int], optional: int) -> list[int]:
    """Return the widths that fit into the room, as far as elastic and optional columns let them."""
    fitting = list(widths)

    def too_much() -> int:
        return sum(fitting) + 2 * (len(fitting) - 1) - room

    for count in range(optional + 1):
        fitting = list(widths[: len(widths) - count])
        for column in elastic:
            least = min(fitting[column], _LEAST_ELASTIC)
            fitting[column] = max(fitting[column] - max(too_much(), 0), least)
        if too_much() <= 0:
            break
    return fitting


def _cut(cell: Cell, width: int) -> Cell:
    return cell if len(cell.text) <= width else Cell(f"{cell.text[: width - 1]}…", cell.tone)


def _to_line(row: Sequence[Cell], widths: Sequence[int], room: int | None) -> str:
    last = max((index for index, cell in enumerate(row) if cell.text), default=0)
    cells = []
    used = 0
    for index, (cell, width) in enumerate(zip(row[: last + 1], widths, strict=False)):
        text = " ".join(cell.text.splitlines()) if "\n" in cell.text else cell.text
        text = text if index == last else text.ljust(width)
        if room is not None and used + len(text) > room:
            text = text[: max(room - used - 1, 0)] + "…" if room > used else ""
        cells.append(paint(text, cell.tone))
        used += len(text) + 2
    return "  ".join(cells).rstrip()
