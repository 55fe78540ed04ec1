"""The one place outside the conversation's prompt where an answer of a person is read.

The end of input (Ctrl-D, a closed standard input, a terminal that is gone) is `None`: whoever asks says what that
stands for, and asks no further. Ctrl-C is no answer: it is raised as `KeyboardInterrupt`, and the exit code is 130.
"""

import contextlib
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
    with contextlib.suppress(OSError):
        sys.stderr.write(prompt)
        sys.stderr.flush()
    try:
        with plain_interrupts():
            return input().strip()
    except UnicodeDecodeError:
        return "\ufffd"  # bytes that are no text: an answer that fits no question
    except (EOFError, OSError, RuntimeError, ValueError):
        # A terminal that is gone is an `OSError`, a standard input that was closed one of the other two.
        with contextlib.suppress(OSError):
            sys.stderr.write("\n")
            sys.stderr.flush()
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
