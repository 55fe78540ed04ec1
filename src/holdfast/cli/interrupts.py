"""Ctrl-C while a question is open."""

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def plain_interrupts() -> Iterator[None]:
    """Make Ctrl-C raise `KeyboardInterrupt`, also inside an event loop, whose handler waits for the answer."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
