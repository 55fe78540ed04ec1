"""A program that opens a store and dies before the n-th line of the store's own code."""

import os
import signal
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

from tests.support.stores import open_store, progress, seqs

import holdfast.runtime.checkpoint as checkpoint
from holdfast.runtime.checkpoint.postgres import schema as postgres_schema
from holdfast.runtime.checkpoint.sqlite import schema as sqlite_schema

_OWN_CODE = os.path.dirname(checkpoint.__file__)
ADDED = ("added_one", "added_two")


@dataclass(frozen=True)
class Opening:
    kind: str
    target: str
    is_newer: bool = False
    """Let this process know a later version of the store, to which it upgrades what it opens."""
    dies_at: int | None = None


def main(opening: Opening, outcome: Connection) -> None:
    """Open the store, write one event, and report how many lines that took and what the run holds."""
    warnings.simplefilter("error")
    if opening.is_newer:
        _learn_next_version()
    lines = 0

    def count(_frame: FrameType, what: str, _arg: Any) -> Callable[..., Any]:
        nonlocal lines
        if what == "line":
            lines += 1
            if lines == opening.dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return count

    sys.settrace(lambda frame, what, arg: count if frame.f_code.co_filename.startswith(_OWN_CODE) else None)
    store = open_store(opening.kind, opening.target)
    store.save_event(progress(text="written"))
    sys.settrace(None)
    outcome.send((lines, seqs(store)))
    store.close()


def _learn_next_version() -> None:
    for schema in (sqlite_schema, postgres_schema):
        schema.UPGRADES = (*schema.UPGRADES, tuple(f"CREATE TABLE {table} (a text)" for table in ADDED))
        schema.VERSION += 1
