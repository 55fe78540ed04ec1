"""Lanes: lines of operations that follow each other, each compared with what the journal has at its place.

Rule: a lane does one thing at a time, in the order that is recorded. What differs is refused before anything is called.
"""

import asyncio
import re
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal

from holdfast.errors import Nondeterminism
from holdfast.runtime.jsondata import to_json
from holdfast.runtime.records import MAIN_LANE, Record, RecordType, describe
from holdfast.runtime.step import Interrupted, Stopped

Operation = tuple[RecordType | Literal["gather"], str]


def describe_operation(operation: Operation) -> str:
    return "gather" if operation[0] == "gather" else describe(operation[0], operation[1])


@dataclass
class LaneCursor:
    """One line of steps that follow each other; lanes beside it are made by `gather`."""

    lane_id: str
    recorded: list[Record]
    position: int = 0
    uses: dict[tuple[str, str], int] = field(default_factory=dict)
    numbered: set[tuple[str, str]] = field(default_factory=set)
    """The keys with an ordinal, and those that a user's name makes look like one."""
    doing: Operation | None = None
    cut_off: Operation | None = None
    """What was cancelled in the middle, by the end of the task or by a time limit around it."""
    interrupted: Interrupted | None = None

    def stop(self, error: Nondeterminism) -> Stopped:
        """End this lane, even if the code catches what is raised now."""
        self.interrupted = Stopped(error)
        return self.interrupted

    def check_free(self, operation: Operation) -> None:
        """Raise if this lane must not do anything more, or not at the same time."""
        if self.interrupted is not None:
            raise self.interrupted
        if self.doing is not None:
            raise self.stop(
                Nondeterminism(
                    f"{describe_operation(operation)} was asked for while {describe_operation(self.doing)} "
                    f"of lane {self.lane_id!r} runs.",
                    hint="Use ctx.gather, with coroutines and not tasks, for what is to run in parallel; await every "
                    "step, and start none inside another.",
                )
            )
        if self.cut_off is not None:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError  # what is recorded now would stand where the resumed run does other things
            raise self.stop(
                Nondeterminism(
                    f"{describe_operation(self.cut_off)} was cancelled before its end, "
                    f"and the flow went on with {describe_operation(operation)}.",
                    hint="Put a time limit inside the function of the step, so that its failure is recorded.",
                )
            )

    def take(self, record_type: RecordType, name: str) -> str:
        """Return the key of the next thing this lane does. Raises if the journal has something else there."""
        self.check_free((record_type, name))
        key = self._new_key(record_type, name)
        while self.position < len(self.recorded):
            found = self.recorded[self.position]
            self.position += 1
            if found.key == key and found.type == record_type:
                break
            if not found.can_be_skipped:
                raise self.stop(_other_than(found, record_type, key, self.lane_id, self.position))
            found.is_skipped = True
        return key

    def _new_key(self, record_type: RecordType, name: str) -> str:
        prefix = "" if self.lane_id == MAIN_LANE else f"{self.lane_id}/"
        while True:
            ordinal = self.uses[record_type, name] = self.uses.get((record_type, name), 0) + 1
            key = f"{prefix}{name}" if ordinal == 1 else f"{prefix}{name}#{ordinal}"
            if "#" not in key:
                return key
            if (record_type, key) not in self.numbered:
                self.numbered.add((record_type, key))
                return key


def _other_than(found: Record, record_type: RecordType, key: str, lane_id: str, position: int) -> Nondeterminism:
    return Nondeterminism(
        f"The journal has {describe(found.type, found.key)} at place {position} of lane {lane_id!r}, "
        f"but the code now asks for {describe(record_type, key)}.",
        recorded=found.key,
        asked=key,
    )


_LANE_NAME = re.compile(r"g\d+\.\d+/")


def check_key(what: str, key: object) -> None:
    """Raise `TypeError` or `ValueError` if a user's key cannot be one."""
    if not isinstance(key, str) or not key:
        raise TypeError(f"The key of a {what} is a string, not {key!r}.")
    if key[0] == "g" and _LANE_NAME.match(key):
        raise ValueError(f"The key {key!r} begins like one in a lane of ctx.gather; choose another.")
    if not key.isprintable():
        to_json(key, f"the key of a {what}")


current_lane: ContextVar[tuple[object, LaneCursor | None]] = ContextVar("holdfast_lane")  # whose, and which
