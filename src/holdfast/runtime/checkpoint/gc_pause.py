"""Python's collector, kept out of bulk work that makes no garbage and of what stays."""

import contextlib
import functools
import gc
from collections.abc import Iterator

_MANY_OBJECTS = 50_000
_YOUNG_OBJECTS = 10_000  # a run of a workflow leaves about 7,000 behind; Python's own limit is 700


@contextlib.contextmanager
def without_gc() -> Iterator[None]:
    """Pause the collector for bulk work that makes no garbage; it goes on afterwards, if it was on before.

    A bulk read makes hundreds of thousands of objects; looking through them for garbage in between costs a third of it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if gc.get_count()[0] > _MANY_OBJECTS and not gc.get_freeze_count():
                # All of it is there to stay for a while: into the oldest generation, instead of being looked through.
                gc.freeze()
                gc.unfreeze()
            gc.enable()


@functools.cache
def freeze_once() -> None:
    """Let the collector look no more at what is loaded by now, for the whole process; only the first call does it.

    For a process that has just done what it will do again and again: hundreds of thousands of objects of modules stay
    to its end, and looking through them took a twentieth of its CPU time. It also looks less often from then on, as
    most of what is young when it looks belongs to a run under way and is no garbage yet.
    """
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, *gc.get_threshold()[1:])
