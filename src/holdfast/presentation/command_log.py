"""What the commands of a run printed, folded from its events: set-up, checks, the agents' shell, coding agents.

Rule: it takes any order a journal can hold and any payload. Standard output and error are one stream, as recorded.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.runtime.event_text import describe_request, find_message, message_text
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.run_fold.call_line import find_argv
from holdfast.runtime.run_fold.tool_outcomes import EXIT_NOTE, find_exit_code

_TOOLS = ("command", "execute", "agent")


@dataclass
class CommandCall:
    """One command: `setup`, `check`, `shell` or `agent`; without an end while `ended_at` is `None`."""

    key: str
    type: str
    phase: str
    attempt: int
    command: str
    started_at: float
    ended_at: float | None = None
    exit_code: int | None = None
    outcome: str = ""
    """How it ended where there is no exit code."""
    output: str = ""
    network: list[dict[str, Any]] = field(default_factory=list)
    """The hosts that it asked the network proxy for."""

    @property
    def network_lines(self) -> list[str]:
        return [describe_request(request) for request in self.network]

    @property
    def duration_s(self) -> float | None:
        return None if self.ended_at is None else max(self.ended_at - self.started_at, 0.0)


class CommandLog:
    def __init__(self) -> None:
        self.calls: dict[str, CommandCall] = {}

    def add(self, event: Event) -> CommandCall | None:
        """Take an event, and return the command that it started, ended or let print something."""
        key = event.payload.get("key")
        if not isinstance(key, str):
            return None
        if (
            event.kind in (EventKind.TOOL_STARTED, EventKind.TOOL_RESULT, EventKind.TOOL_ERROR)
            and event.payload.get("tool") in _TOOLS
        ):
            known = self.calls.setdefault(key, _to_call(event, key))
            if event.kind == EventKind.TOOL_STARTED:  # again, after a crash or a failed try
                known.ended_at, known.exit_code, known.outcome = None, None, ""
        call = self.calls.get(key)
        if call is None:
            return None
        if event.kind == EventKind.TEXT_DELTA:
            call.output += str(event.payload.get("text") or "")
        elif event.kind in (EventKind.TOOL_RESULT, EventKind.TOOL_ERROR):
            _end_call(call, event)
        elif event.kind == EventKind.TOOL_UNKNOWN:
            call.outcome = "what became of it is not known"
        return call


def _to_call(event: Event, key: str) -> CommandCall:
    phase, _, rest = event.lane_id.partition("/")
    attempt = rest.partition("/")[0]
    tool = event.payload.get("tool")
    type_ = {"execute": "shell", "agent": "agent"}.get(str(tool), "setup" if phase == "setup" else "check")
    args = event.payload.get("args")
    argv = find_argv(event.payload)
    line = args.get("command") if isinstance(args, Mapping) else None
    command = str(line or tool) if argv is None else shlex.join(argv)
    return CommandCall(key, type_, phase, int(attempt) if attempt.isdigit() else 1, command, event.ts)


def _end_call(call: CommandCall, event: Event) -> None:
    result, error = event.payload.get("result"), event.payload.get("error")
    call.ended_at = event.ts
    requests = result.get("network") if isinstance(result, Mapping) else None
    call.network = [one for one in requests if isinstance(one, dict)] if isinstance(requests, list) else []
    if event.kind == EventKind.TOOL_ERROR:
        call.outcome = str(error.get("message") or "failed") if isinstance(error, Mapping) else str(error or "failed")
        return
    if isinstance(result, Mapping) and isinstance(result.get("output"), str):
        call.exit_code, call.output = _to_code(result.get("exit_code")), result["output"]
        call.outcome = str(result.get("outcome") or "") if call.exit_code is None else ""
        return
    text = message_text(result)
    call.exit_code = find_exit_code(result)
    if not _has_recorded_code(result) and (note := EXIT_NOTE.search(text)):
        text = text[: note.start()]
    if len(text) >= len(call.output):  # an agent's pieces are the whole, its answer the end of it
        call.output = text


def _to_code(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _has_recorded_code(result: Any) -> bool:
    made = (find_message(result) or {}).get("artifact")
    return isinstance(made, Mapping) and _to_code(made.get("exit_code")) is not None
