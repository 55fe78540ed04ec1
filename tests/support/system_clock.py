"""A clock of a whole process that is wrong, by libfaketime: also for what libraries and children ask the system."""

from pathlib import Path

_PLACES = ("/usr/lib", "/usr/local/lib", "/opt/homebrew/lib")


def find_faketime() -> Path | None:
    """Return the library, as Debian's package faketime brings it; `None` where it is not installed."""
    patterns = ("faketime/libfaketimeMT.so.1", "*/faketime/libfaketimeMT.so.1")
    found = (path for place in _PLACES for pattern in patterns for path in Path(place).glob(pattern))
    return next(found, None)


def to_faketime(library: Path, ahead_s: float) -> dict[str, str]:
    """Return the environment of a process whose clock is ahead; time that only goes by is not changed."""
    plain = dict.fromkeys(("DONT_FAKE_MONOTONIC", "FAKETIME_DONT_FAKE_MONOTONIC"), "1")
    return {"LD_PRELOAD": str(library), "FAKETIME": f"+{ahead_s:g}s", **plain}
