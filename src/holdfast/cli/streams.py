"""The three streams of a process, of which a shell can have closed any (`<&-`)."""

import os
import sys


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
