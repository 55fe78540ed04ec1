"""Quantities and names as people say them, once for the command line and the pages. Pure: no clock, no I/O."""

from collections.abc import Callable, Iterable

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


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
    real_usd: float,
    simulated_usd: float,
    reserved_usd: float = 0.0,
    unanswered_usd: float = 0.0,
    *,
    show: Callable[[float], str] = money,
) -> str:
    """Write a cost: `$1.12`, `$0.12 simulated`, `$1.12 and $0.12 simulated`, `$0.12 spent, $0.30 perhaps paid`.

    Play money is never added to real money. `reserved_usd` is the part of the real money that is held for calls without
    an answer, and `unanswered_usd` the part of that whose calls are over: nobody knows whether they were paid.
    """
    simulated = f"{show(simulated_usd)} simulated" if simulated_usd else ""
    if simulated and not real_usd:
        return simulated
    under_way_usd = reserved_usd - unanswered_usd
    parts = [show(real_usd)]
    if reserved_usd:
        parts = [f"{show(real_usd - reserved_usd)} spent"]
        parts += [f"{show(under_way_usd)} reserved"] if under_way_usd > 0 else []
        parts += [f"{show(unanswered_usd)} perhaps paid"] if unanswered_usd else []
    real = ", ".join(parts)
    return f"{real} and {simulated}" if simulated else real


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


def compact(number: int) -> str:
    """Write a count in a few characters: `820`, `12.1k`, `1.2M`."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if number >= size * 0.9995:
            value = number / size
            return f"{value:.0f}{unit}" if value >= 100 else f"{value:.1f}".removesuffix(".0") + unit
    return str(number)


def moment(text: str) -> str:
    """Write a stored time, which is ISO 8601 in UTC, to the minute: `2026-11-17 02:38 UTC`."""
    return f"{text[:16].replace('T', ' ')} UTC"


def plural(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def quoted(names: Iterable[str]) -> str:
    return " and ".join(f"“{name}”" for name in names)


def match_names(part: str, names: Iterable[str], most: int) -> list[str]:
    """List the names that a person may mean who has typed this part: first what begins with it, then what holds it."""
    lower = part.lower()
    found = [name for name in names if lower in name.lower()]
    return sorted(found, key=lambda name: (not name.lower().startswith(lower), name))[:most]


def sentence_case(text: str) -> str:
    return text[:1].upper() + text[1:]


def describe_sandbox(kind: str, unsandboxed_by: str | None) -> str:
    """Say what contains the commands of a run; nothing where its journal does not say."""
    if unsandboxed_by is not None:
        return f"no sandbox, chosen by {unsandboxed_by or 'a person'}"
    if kind == "none":
        return "no sandbox on its machine: commands need approval"
    return f"commands run in {kind}" if kind else ""
