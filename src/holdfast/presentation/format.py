"""Quantities and names as people say them, once for the command line and the pages. Pure: no clock, no I/O."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_MOST_SAYING_FIRST = ("command", "file_path", "path", "pattern", "query", "url", "description")


def money(usd: float | None) -> str:
    """Write an amount: `$1.12`, `$0.004`, `$0`, `$1,204.00`."""
    if usd is None:
        return "–"
    sign, amount = "−" if usd < 0 else "", abs(usd)
    if amount == 0:
        return "$0"
    if amount < 0.0001:
        return f"{sign}<$0.0001"
    if amount < 0.1:
        return f"{sign}${float(f'{amount:.2g}'):.6f}".rstrip("0")
    return f"{sign}${amount:,.2f}"


def exact_money(usd: float) -> str:
    """Write an amount with as many digits as small calls need, for columns: `$0.1200`."""
    return f"${usd:.4f}"


def cost(
    real_usd: float, simulated_usd: float, reserved_usd: float = 0.0, *, show: Callable[[float], str] = money
) -> str:
    """Write a cost: `$1.12`, `$0.12 simulated`, `$1.12 and $0.12 simulated`, `$0.12 spent, $0.30 reserved`.

    Play money is never added to real money. `reserved_usd` is the part of the real money that is held for calls without
    an answer.
    """
    simulated = f"{show(simulated_usd)} simulated" if simulated_usd else ""
    if simulated and not real_usd:
        return simulated
    real = f"{show(real_usd - reserved_usd)} spent, {show(reserved_usd)} reserved" if reserved_usd else show(real_usd)
    return f"{real} and {simulated}" if simulated else real


def advise_on_budget(run_id: str, exhausted: Mapping[str, Any]) -> str:
    """Say what to do about the limit that was hit, with the command; `exhausted` is its event's payload."""
    short = run_id[:8]
    if exhausted.get("limit") == "day":
        raised = f"raise day_budget_usd in the settings (or HOLDFAST_DAY_BUDGET_USD) and holdfast resume {short}"
        return f"Tomorrow (UTC): holdfast resume {short}. Sooner: {raised}"
    amounts = [exhausted.get(name) for name in ("spent_micros", "needed_micros", "limit_micros")]
    spent, needed, limit = (int(amount) if isinstance(amount, int | float) else 0 for amount in amounts)
    cents = max(1, -(-(spent + needed - limit) // 10_000))
    of_phase = "the phase" if exhausted.get("limit") == "phase" else "the run"
    return f"Give {of_phase} more: holdfast budget {short} --add {cents / 100:.2f}, then holdfast resume {short}"


def phase_status(state: str, run_state: str, *, is_driven: bool = True) -> str:
    """Return a phase's state as people read it: none is running in a run that is over, paused or interrupted."""
    if run_state in ("completed", "failed", "cancelled") and state in ("running", "awaiting_approval"):
        return "stopped"
    if state == "running" and run_state == "paused":
        return "paused"
    return "interrupted" if state == "running" and not is_driven else state


def duration(seconds: float | None) -> str:
    """Write a length of time: `4 ms`, `38 s`, `14 min`, `2 h 5 min`, `3 d 4 h`."""
    if seconds is None:
        return "–"
    if seconds < 0.95:
        return f"{max(1, round(seconds * 1000))} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    index = next(index for index, (_, size) in enumerate(_UNITS) if whole >= size)
    unit, size = _UNITS[index]
    rest = ""
    if unit != "s" and (unit != "min" or whole < 600):
        smaller, each = _UNITS[index + 1]
        rest = f" {whole % size // each} {smaller}" if whole % size >= each else ""
    return f"{whole // size} {unit}{rest}"


def plural(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def first_line(text: Any, most: int = 140) -> str:
    line = str(text or "").strip().partition("\n")[0].lstrip("#").strip()
    return f"{line[: most - 1]}…" if len(line) > most else line


def quoted(names: Iterable[str]) -> str:
    return " and ".join(f"“{name}”" for name in names)


def sentence_case(text: str) -> str:
    return text[:1].upper() + text[1:]


def error_text(error: Any) -> str:
    """Return what an error says, in whichever form it was recorded."""
    if not error:
        return ""
    if isinstance(error, dict):
        return str(error.get("message") or error.get("detail") or error.get("code") or error)
    return str(error)


def brief(args: Any) -> str:
    """Return the argument of a call that says most about it: a path, a command, a pattern."""
    if not isinstance(args, dict):
        return first_line("" if args is None else args, 100)
    texts = [args.get(name) for name in _MOST_SAYING_FIRST] + list(args.values())
    best = next((text for text in texts if isinstance(text, str) and text), None)
    return first_line(best if best is not None else (str(args) if args else ""), 100)
