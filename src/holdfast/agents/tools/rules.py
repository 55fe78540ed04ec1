"""What is known of each tool: whether it changes files, and what to do if a process died in the middle of it.

A tool that nobody described is taken to change things, and a person is asked what became of it.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from holdfast.agents.policy.file_policy import to_relative
from holdfast.agents.policy.web_policy import WEB_TOOLS
from holdfast.runtime.outcomes.unknown_outcomes import Done, NotDone, Unclear
from holdfast.runtime.records import Record
from holdfast.runtime.run_fold.call_line import AGENT, ENGINE
from holdfast.runtime.run_fold.todo_log import TODO_TOOL
from holdfast.workspace import CommandPlace, announce, find_duration, find_place, is_announced, is_lost


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call as the model asked for it."""

    name: str
    args: Mapping[str, Any] = field(default_factory=dict)
    call_id: str = ""
    is_of_engine: bool = False
    """The engine itself makes it, and no model has chosen its arguments."""

    @property
    def caller(self) -> str:
        return ENGINE if self.is_of_engine else AGENT

    def text(self, name: str) -> str:
        value = self.args.get(name)
        return value if isinstance(value, str) else ""


ToolReconcile = Callable[[ToolCall, str], Awaitable[Done | NotDone | Unclear]]
"""Finds out whether a call happened, given what `look` saw before it; `Done.result` is the text the tool answers."""


@dataclass(frozen=True)
class CommandSpool:
    """Where the commands of a tool are begun, and what its persona says of one that is lost."""

    spool_dir: Path
    on_lost: Literal["ask", "rerun"] = "ask"
    is_contained: bool = False
    """Each of them can change the worktree and nothing else; otherwise that depends on the call."""

    @cached_property
    def place(self) -> CommandPlace:
        return find_place(self.spool_dir.parent)

    def announce(self, key: str) -> None:
        announce(key, spool_dir=self.spool_dir)

    def is_lost(self, key: str) -> bool:
        """Tell whether there is a command of which nothing can be known any more."""
        return is_lost(key, spool_dir=self.spool_dir)

    def is_gone(self, key: str) -> bool:
        """Tell whether what must be there of a command that was begun in this place is not."""
        return not is_announced(key, spool_dir=self.spool_dir)

    def look_for(self, key: str, begun: Mapping[str, Any]) -> Literal["reattached", "rerun", "ask"]:
        """Say what becomes of a command in flight, by the facts of its intent; without any, by the spool alone."""
        if begun and not self.place.is_same(begun):
            # One that could reach nothing has changed only the worktree that is gone with its machine.
            return "rerun" if begun.get("is_contained") or self.on_lost == "rerun" else "ask"
        if self.is_lost(key) or (begun and self.is_gone(key)):
            return self.on_lost
        return "reattached"


@dataclass(frozen=True, slots=True)
class ToolRule:
    """How one tool behaves. `look` tells in a few characters what its target was like before the call.

    With `reattach` the tool, called again, goes on with the command that it began, as its `spool` says.
    """

    on_unknown: Literal["rerun", "ask", "fail", "reattach"] | ToolReconcile = "ask"
    is_mutating: bool = True
    look: Callable[[ToolCall], str] | None = None
    spool: CommandSpool | None = None
    is_of_engine: bool = False
    """The engine itself makes these calls, beside those of a model."""

    async def look_for_begun(self, key: str, *, record: Record | None) -> NotDone | Unclear:
        found = self._look_for(key, record)
        return Unclear() if found == "ask" else NotDone(found)

    def can_reattach(self, key: str, record: Record | None) -> bool:
        """Tell whether this call was in flight at a crash and its command is found again instead of being run again."""
        return self.is_in_doubt(record) and self._look_for(key, record) == "reattached"

    def find_duration(self, key: str) -> float | None:
        """Find how long a command took by itself: who waits for one that another process began sees a part of that."""
        return None if self.spool is None else find_duration(key, spool_dir=self.spool.spool_dir)

    def must_ask(self, key: str, record: Record | None) -> bool:
        """Tell whether this call was in flight at a crash and only a person can say what became of its command."""
        return self.is_in_doubt(record) and self._look_for(key, record) == "ask"

    def is_in_doubt(self, record: Record | None) -> bool:
        return self.on_unknown == "reattach" and record is not None and record.is_in_doubt

    def _look_for(self, key: str, record: Record | None) -> Literal["reattached", "rerun", "ask"]:
        if self.spool is None:
            return "reattached"
        return self.spool.look_for(key, {} if record is None else record.place)


UNKNOWN_TOOL = ToolRule()
NO_TOOL = ToolRule("rerun", is_mutating=False)
"""For a call of a tool that the agent does not have: it is refused, however often."""
_READS = ToolRule("rerun", is_mutating=False)
FILE_TOOLS = ("ls", "read_file", "glob", "grep", "write_file", "edit_file", "delete")


def file_tool_rules(root_dir: Path) -> dict[str, ToolRule]:
    """Return the rules of the file tools on a workspace, and of `task`, whose own calls are journaled one by one."""
    root = root_dir
    return {
        **dict.fromkeys(("ls", "read_file", "glob", "grep", "task", TODO_TOOL, *WEB_TOOLS), _READS),
        "write_file": ToolRule("rerun"),
        "edit_file": ToolRule(
            lambda call, before: _find_edit(root, call, before), look=lambda call: _read_fingerprint(root, call)
        ),
        "delete": ToolRule(
            lambda call, before: _find_delete(root, call, before), look=lambda call: _read_fingerprint(root, call)
        ),
    }


def command_rules(spool_dir: Path, on_lost: Literal["ask", "rerun"] = "ask") -> dict[str, ToolRule]:
    """Return the rules of the tools whose commands are spooled: `execute`, and `agent`, which is a command persona."""
    rule = ToolRule("reattach", spool=CommandSpool(spool_dir, on_lost))
    return {"execute": rule, "agent": rule}


def _target(root: Path, call: ToolCall) -> Path:
    return root / to_relative(root, call.text("file_path"))


def _read_fingerprint(root: Path, call: ToolCall) -> str:
    """Count how often the text to be replaced occurs in the file, and hash the file; empty where there is none."""
    path = _target(root, call)
    try:
        content = path.read_bytes()
    except OSError:
        return "folder" if path.is_dir() else "absent"
    found = _normalise(content).count(_normalise(call.text("old_string").encode()) or b"\0")
    return f"{found}:{hashlib.sha256(content).hexdigest()[:16]}"


def _normalise(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")  # as the tool itself compares


async def _find_edit(root: Path, call: ToolCall, before: str) -> Done | NotDone:
    now = _read_fingerprint(root, call)
    if now == before or before == "absent":
        return NotDone()  # also where the tool will refuse: it then refuses once more, in its own words
    try:
        content = _normalise(_target(root, call).read_bytes())
    except OSError:
        return NotDone()
    if _normalise(call.text("new_string").encode()) not in content:
        return NotDone()
    count = before.partition(":")[0] if call.args.get("replace_all") else "1"
    return Done(f"Successfully replaced {count} instance(s) of the string in '{_virtual_path(call)}'")


async def _find_delete(root: Path, call: ToolCall, before: str) -> Done | NotDone:
    path = _target(root, call)
    if before == "absent" or path.exists() or path.is_symlink():
        return NotDone()
    return Done(f"Deleted {_virtual_path(call)}")


def _virtual_path(call: ToolCall) -> str:
    return "/" + call.text("file_path").lstrip("/")  # as the tool itself shows it
