"""Lanes: lines of operations that follow each other, each compared with what the journal has at its place.

Rule: a lane does one thing at a time, in the order that is recorded. What differs is refused before anything is called.
"""

import asyncio
import contextlib
import os
import re
import sys
import threading
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Literal

from holdfast.errors import Nondeterminism, RunPaused
from holdfast.runtime.jsondata import to_json
from holdfast.runtime.records import MAIN_LANE, Record, RecordType, describe
from holdfast.runtime.step import CancelRun, Interrupted, Stopped, Suspended, current_step

Operation = tuple[RecordType | Literal["gather"], str]


class ChildPaused(Suspended):
    """A child waits for a person, and so does its parent: `error` says for what."""

    def __init__(self, key: str, error: RunPaused) -> None:
        super().__init__(key)
        self.error = error


def describe_operation(operation: Operation) -> str:
    return "gather" if operation[0] == "gather" else describe(operation[0], operation[1])


@dataclass
class LaneCursor:
    """One line of steps that follow each other; lanes beside it are made by `gather`."""

    lane_id: str
    recorded: list[Record]
    has_company: bool = False
    """Other lanes run beside it, so a function that blocks must not keep the loop from them."""
    position: int = 0
    prefix: str = field(init=False)
    uses: dict[tuple[str, str], int] = field(default_factory=dict)
    like_numbered: set[tuple[str, str]] = field(default_factory=set)
    """The keys that a user's name makes look like one with an ordinal."""
    doing: Operation | None = None
    cut_off: Operation | None = None
    """What was cancelled in the middle, by the end of the task or by a time limit around it."""
    interrupted: Interrupted | None = None
    cancelled: CancelRun | None = None
    """The cancellation that has reached the code of this lane: nothing but its compensations is done any more."""
    is_shielded: bool = False
    """A compensation runs."""
    requests_met: int = 0
    """How many requests to cancel this lane acts on, or hands down to a child: a further one ends that."""
    versions: dict[str, bool] = field(default_factory=dict)
    last_key: str = ""
    notes: int = 0
    """How many notes were made since `last_key`."""

    def __post_init__(self) -> None:
        self.prefix = "" if self.lane_id == MAIN_LANE else f"{self.lane_id}/"

    def stop(self, error: Nondeterminism) -> Stopped:
        """End this lane, even if the code catches what is raised now."""
        self.interrupted = Stopped(error)
        return self.interrupted

    def check_free(self, operation: Operation) -> None:
        """Raise if this lane must not do anything more, or not at the same time."""
        if self.interrupted is not None:
            raise self.interrupted
        if self.cancelled is not None and not self.is_shielded:
            raise self.cancelled
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
                    hint="Give the step a time limit, whose end is recorded: ctx.step.options(timeout=5)(key, fn, …).",
                )
            )

    def take(self, record_type: RecordType, name: str) -> str:
        """Return the key of the next thing this lane does. Raises if the journal has something else there."""
        if self.doing or self.interrupted or self.cut_off or self.cancelled:
            self.check_free((record_type, name))
        key = self._new_key(record_type, name)
        while self.position < len(self.recorded):
            found = self.recorded[self.position]
            self.position += 1
            if found.key == key and found.type == record_type:
                if found.type != "step":
                    self.meet_cancel(record_type, key)
                break
            if found.type == "cancel":
                raise self.cancel(_to_request(found))
            if not found.can_be_skipped:
                raise self.stop(self._other_than(found, record_type, key))
            found.is_skipped = True
        self.last_key, self.notes = key, 0
        return key

    def meet_cancel(self, record_type: RecordType, key: str) -> None:
        """Raise the cancellation that is recorded next, if it reached the code in the middle of this operation."""
        if self.position < len(self.recorded):
            found = self.recorded[self.position]
            if found.type == "cancel" and _place_of(found) == [record_type, key]:
                self.position += 1
                raise self.cancel(_to_request(found))

    def cancel(self, request: CancelRun) -> CancelRun:
        """Note that a cancellation has reached the code, and return what is raised there."""
        self.cancelled = CancelRun(request.reason, request.by)
        return self.cancelled

    @property
    def has_more(self) -> bool:
        """Return true if the journal has something in this lane that the code has not asked for yet."""
        return any(not self.recorded[place].can_be_skipped for place in range(self.position, len(self.recorded)))

    def _other_than(self, found: Record, record_type: RecordType, key: str) -> Nondeterminism:
        here = describe(record_type, key)
        place = self.position - 1
        before = [describe(one.type, one.key) for one in self.recorded[:place] if not one.is_skipped][-3:]
        after = [describe(one.type, one.key) for one in self.recorded[place + 1 : place + 4]]
        recorded = describe(found.type, found.key)
        file, line = find_caller()
        where = f" at {_short(file)}:{line}" if file else ""
        return Nondeterminism(
            f"The journal has {recorded} at place {self.position} of lane {self.lane_id!r}, "
            f"but the code now asks for {here}{where}. "
            f"Recorded: {_sequence(before, recorded, after)}. Asked: {_sequence(before, here, [])}.",
            recorded=found.key,
            asked=key,
            recorded_around=[*before, recorded, *after],
            code_around=[*before, here],
            file=file,
            line=line,
        )

    def _new_key(self, record_type: RecordType, name: str) -> str:
        use = record_type, name
        while True:
            ordinal = self.uses[use] = self.uses.get(use, 0) + 1
            if ordinal > 1:
                key = f"{self.prefix}{name}#{ordinal}"
                if not self.like_numbered or (record_type, key) not in self.like_numbered:
                    return key
            elif "#" not in name:
                return self.prefix + name
            elif not self._is_ordinal_of_another(record_type, name):
                key = self.prefix + name
                self.like_numbered.add((record_type, key))
                return key

    def _is_ordinal_of_another(self, record_type: RecordType, name: str) -> bool:
        """Return true if a shorter name was used so often that it has made this key."""
        shorter, _, digits = name.rpartition("#")
        uses = self.uses.get((record_type, shorter), 0)
        return len(digits) < 10 and digits.isdecimal() and digits == str(int(digits)) and 2 <= int(digits) <= uses


def _place_of(record: Record) -> object:
    return record.result.get("at") if isinstance(record.result, dict) else None


def _to_request(record: Record) -> CancelRun:
    result = record.result if isinstance(record.result, dict) else {}
    return CancelRun(str(result.get("reason", "")), str(result.get("by", "")))


def _short(file: str) -> str:
    """Return a path as people name it: from where they are, if the file is below."""
    folder = f"{Path.cwd()}{os.sep}"
    return file.removeprefix(folder)


def _sequence(before: list[str], here: str, after: list[str]) -> str:
    return " → ".join([*before, f"[{here}]", *after])


def find_caller() -> tuple[str, int]:
    """Find the file and line of the user's code that asks now; nothing where a task of ours is all there is."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != asyncio.events.__file__:
        if not frame.f_code.co_filename.startswith(_NOT_THE_USERS):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return current_caller.get(("", 0))


_NOT_THE_USERS = (
    f"{Path(__file__).parents[1]}{os.sep}",
    f"{Path(asyncio.__file__).parent}{os.sep}",
    threading.__file__,
    contextlib.__file__,
    "<frozen",
)

_LANE_NAME = re.compile(r"g\d+\.\d+/")


def check_key(what: str, key: object) -> None:
    """Raise `TypeError` or `ValueError` if a user's key cannot be one."""
    if not isinstance(key, str) or not key:
        hint = f": its key comes first, ctx.{what}('key', …)" if callable(key) else ""
        raise TypeError(f"The key of a {what} is a string, not {key!r}{hint}.")
    if key[0] == "g" and _LANE_NAME.match(key):
        raise ValueError(f"The key {key!r} begins like one in a lane of ctx.gather; choose another.")
    if not key.isprintable():
        to_json(key, f"the key of a {what}")


current_caller: ContextVar[tuple[str, int]] = ContextVar("holdfast_caller")  # file and line in a plain flow's thread
current_lane: ContextVar[tuple[object, LaneCursor | None]] = ContextVar("holdfast_lane")  # whose, and which


def refuse_in_flow(what: str, instead: str) -> None:
    """Raise if this is the code of a flow, outside a step: a run without an id would be another one at each resume."""
    _, lane = current_lane.get((None, None))
    if lane is not None and current_step.get(None) is None:
        raise lane.stop(
            Nondeterminism(f"{what} in the code of a flow would start another run at every resume.", hint=instead)
        )
