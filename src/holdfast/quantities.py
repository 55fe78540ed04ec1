"""Times and sizes as people write them: `30d`, `12h`, `10GB`."""

import re

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])", re.IGNORECASE | re.ASCII)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE | re.ASCII)
_LONGEST_S = 100 * 365 * 86_400
_LARGEST_BYTES = 2**60

DURATION_FORM = "a number with s, m, h, d or w, such as 12h or 30d"
SIZE_FORM = "a number with MB, GB or TB, such as 10GB"


def parse_duration(text: str) -> float:
    """Return the seconds of `90s`, `15m`, `12h`, `30d` or `2w`. Raises `ValueError`."""
    found = _DURATION.fullmatch(text.strip())
    seconds = float(found[1]) * _SECONDS[found[2].lower()] if found else -1.0
    if not 0 <= seconds <= _LONGEST_S:
        raise ValueError(DURATION_FORM)
    return seconds


def parse_size(text: str) -> int:
    """Return the bytes of `500MB`, `10GB` or `1.5GiB`: powers of 1000, of 1024 with an `i`. Raises `ValueError`."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or (found[3] and not found[2]):
        raise ValueError(SIZE_FORM)
    unit: int = (1024 if found[3] else 1000) ** _POWERS[found[2].lower()]
    size = float(found[1]) * unit
    if size > _LARGEST_BYTES:
        raise ValueError(SIZE_FORM)
    return round(size)


def format_number(number: float) -> str:
    """Format a number for people in all its digits: `1000000`, `0.5`, `0.0000001`."""
    shortest = repr(float(number)).removesuffix(".0")
    return f"{number:.18f}".rstrip("0") if "e-" in shortest else shortest


def format_size(size_bytes: int) -> str:
    """Format a size for people, in powers of 1000: `412 kB`, `1.3 GB`."""
    amount = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit in ("B", "kB") or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
