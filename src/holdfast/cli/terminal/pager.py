"""Shows a long text a screen at a time: in the user's pager, in `less` where that is GNU's, else in a small own one.

Whichever it is, `q` and Ctrl-D go on, Ctrl-C ends the command, and the terminal is left as it was found.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from holdfast.cli.terminal.answer_input import plain_interrupts, wait_for_input

HELP = "space shows more, q goes on"
_KEYS = "#command\n^D quit\n"
_FIRST_WITH_KEYS = 582  # the first version of less that reads a file of keys in source form
_STOP_KEYS = ("", "q", "Q", "\x04", "\x1b")


def show_in_pager(text: str) -> None:
    """Show a text until its end or until the person has enough. Raises `KeyboardInterrupt` for Ctrl-C."""
    with plain_interrupts(), _same_terminal():
        if own := _find_program(os.environ.get("PAGER", "")):
            _run(own, text, {})
        elif (less := shutil.which("less")) and _reads_keys(less):
            _run_less(less, text)
        else:
            _page(text)


def _find_program(command: str) -> list[str]:
    """Return the words of a pager of the user's choice, or nothing if there is no such program."""
    words = command.split()
    program = shutil.which(words[0]) if words else None
    return [program, *words[1:]] if program else []


def _reads_keys(less: str) -> bool:
    """Return whether it is a `less` that takes a file of keys; busybox has another one of that name."""
    try:
        said = subprocess.run([less, "--version"], capture_output=True, text=True, check=False, timeout=5).stdout
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return False
    found = re.match(r"less (\d+)", said)
    return found is not None and int(found[1]) >= _FIRST_WITH_KEYS


def _run_less(less: str, text: str) -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-pager-") as folder:
        keys = Path(folder, "keys")
        keys.write_text(_KEYS)
        # The screen is not cleared at the end, so that what was read stays above the question.
        _run([less, "-K"], text, {"LESS": f"-FRX -Ps{HELP}", "LESSKEYIN": str(keys)})


def _run(argv: list[str], text: str, settings: dict[str, str]) -> None:
    """Run a pager on a text; the user's own settings come before ours."""
    environment = {**settings, **os.environ}
    with contextlib.suppress(OSError):  # a pager that cannot be started, or ends while it is written to
        subprocess.run(argv, input=text.encode(errors="replace"), env=environment, check=False)


@contextlib.contextmanager
def _same_terminal() -> Iterator[None]:
    """Give the terminal its settings back, whatever a program did to them and however it ended."""
    try:
        import termios
    except ImportError:  # not on this system
        yield
        return
    try:
        found = termios.tcgetattr(0)
    except (termios.error, OSError):  # no terminal
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(termios.error, OSError):
            termios.tcsetattr(0, termios.TCSADRAIN, found)


# -- the small one ----------------------------------------------------------------------------------------------------


def _page(text: str) -> None:
    """Print as many lines as fit, then wait for a key; without a terminal to read keys from, print all of it."""
    can_ask = _take_keys_one_by_one()
    size = shutil.get_terminal_size()
    room = max(size.lines - 1, 2)
    lines = text.splitlines()
    left = room
    for index, line in enumerate(lines):
        rows = max(1, -(-len(line) // max(size.columns, 1)))
        if can_ask and rows > left and index:
            key = _ask_for_key()
            if key in _STOP_KEYS:
                return
            left = 1 if key in "\r\n" else room
        _write(f"{line}\n")
        left -= rows


def _take_keys_one_by_one() -> bool:
    """Let keys arrive as they are pressed, Ctrl-C as an interrupt; false where no key can be read."""
    try:
        import termios
        import tty
    except ImportError:  # not on this system
        return False
    try:
        tty.setcbreak(0, termios.TCSADRAIN)  # what was typed ahead counts
    except (termios.error, OSError):
        return False
    return True


def _ask_for_key() -> str:
    """Wait for the next key and return it; the empty text at the end of input."""
    _write(HELP)
    try:
        wait_for_input()
        return os.read(0, 1).decode(errors="replace")
    except OSError:
        return ""
    finally:
        _write("\r" + " " * len(HELP) + "\r")


def _write(text: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()
