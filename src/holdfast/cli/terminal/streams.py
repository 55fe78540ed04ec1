"""The three streams of the process: what is piped into it, and streams that a shell has closed (`<&-`).

Every start of the program imports this, so it imports next to nothing.
"""

import os
import select
import sys

from holdfast.errors import ConfigInvalid

MAX_STDIN_BYTES = 200_000
_NOTICE_S = 1.0


def read_stdin() -> str:
    """Read what stands on standard input if that is no terminal; nothing if it is one, or is closed.

    Raises `ConfigInvalid` for more than `MAX_STDIN_BYTES`, and for what is no text.
    """
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    try:
        if not select.select([sys.stdin], [], [], _NOTICE_S)[0]:
            from holdfast.cli.terminal.output import say

            say("Reads standard input to its end.")
        text = sys.stdin.buffer.read(MAX_STDIN_BYTES + 1)
    except (OSError, ValueError):
        return ""
    if len(text) > MAX_STDIN_BYTES:
        raise ConfigInvalid(
            f"Standard input is longer than {MAX_STDIN_BYTES // 1000} kB, which is more than a message takes.",
            hint="Send a part of it, or write it to a file of the repository and name that.",
            key="stdin",
        )
    if b"\0" in text:
        raise ConfigInvalid("Standard input is no text.", hint="Send text.", key="stdin")
    return text.decode(errors="replace")


def open_closed_streams() -> None:
    """Put an empty stream where one is closed, whose place the next file that is opened would take."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
        if getattr(sys, name) is None:
            stream = open(number, mode, closefd=False)  # noqa: SIM115 - as long as the process
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
