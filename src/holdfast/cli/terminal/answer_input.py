"""The one place outside the conversation's prompt where an answer of a person is read.

The end of input (Ctrl-D, a closed standard input, a terminal that is gone) is `None`: whoever asks says what that
stands for, and asks no further. Ctrl-C is no answer: it is raised as `KeyboardInterrupt`, and the exit code is 130.
"""

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator

_YES = ("y", "yes")
_NO = ("n", "no")


@contextlib.contextmanager
def plain_interrupts() -> Iterator[None]:
    """Let Ctrl-C raise `KeyboardInterrupt` at once. An event loop's own way waits until the loop has its turn again."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def read_answer(prompt: str) -> str | None:
    """Ask on standard error and return the line that was typed, without the spaces around it; `None` at the end."""
    line = read_line(prompt)
    return None if line is None else line.strip()


def read_line(prompt: str) -> str | None:
    """Ask on standard error and return the line as it was typed; `None` at the end of input."""
    try:
        with plain_interrupts():  # from before the prompt can be seen: a Ctrl-C may follow at once
            with contextlib.suppress(OSError):
                sys.stderr.write(prompt)
                sys.stderr.flush()
            wait_for_input()
            line = "" if sys.stdin is None else sys.stdin.readline()
    except UnicodeDecodeError:
        return "\ufffd"  # bytes that are no text: an answer that fits no question
    except (OSError, ValueError):  # the terminal is gone, or standard input was closed
        line = ""
    if line:
        return line.rstrip("\n")
    with contextlib.suppress(OSError):
        sys.stderr.write("\n")
        sys.stderr.flush()
    return None


def wait_for_input() -> None:
    """Wait until the terminal has something to read; a Ctrl-C that comes before the wait begins is not lost.

    Returns at once where standard input is no terminal. Raises `KeyboardInterrupt`.
    """
    if threading.current_thread() is not threading.main_thread() or sys.stdin is None or not sys.stdin.isatty():
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    # A signal that arrives between the last look for one and the call that waits would be seen only after it.
    previous = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        while sys.stdin.fileno() not in select.select([sys.stdin.fileno(), reader], [], [])[0]:
            os.read(reader, 4096)
    finally:
        signal.set_wakeup_fd(previous)
        os.close(reader)
        os.close(writer)


def choose(prompt: str, choices: str) -> str | None:
    """Ask until the answer begins with one of these letters and return it; `None` at the end of input and Ctrl-C."""
    try:
        while (answer := read_answer(prompt)) is not None:
            if answer and answer[0].lower() in choices:
                return answer[0].lower()
            if answer:
                with contextlib.suppress(OSError):
                    sys.stderr.write(f"{answer!r} is none of these.\n")
    except KeyboardInterrupt:
        return None
    return None


def confirm(question: str, *, default: bool = False) -> bool:
    """Ask until the answer is yes or no. An empty line and the end of input are the default."""
    choices = "Y/n" if default else "y/N"
    while (answer := read_answer(f"{question} [{choices}]: ")) is not None:
        word = answer.lower()
        if not word:
            return default
        if word in (*_YES, *_NO):
            return word in _YES
    return default
