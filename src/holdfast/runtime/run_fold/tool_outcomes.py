"""What became of a tool call, by its recorded result: a call that came back need not have done what it should.

Rule: it takes any payload, and says nothing of what it does not know.
"""

import re
from collections.abc import Mapping
from typing import Any

from holdfast.runtime.event_text import find_message, message_text

EXIT_NOTE = re.compile(r"\n?\[Command \w+ with exit code (-?\d+)\]\s*$")


def find_exit_code(result: Any) -> int | None:
    """Return the exit code of a command: as it is recorded, else as its output tells it."""
    if not isinstance(result, Mapping):
        return None
    made = (find_message(result) or {}).get("artifact")
    for facts in (result, made):
        code = facts.get("exit_code") if isinstance(facts, Mapping) else None
        if isinstance(code, int) and not isinstance(code, bool):
            return code
    note = EXIT_NOTE.search(message_text(result))
    return int(note[1]) if note else None


def describe_failure(result: Any) -> str:
    """Say in a word or two how a call failed whose result this is; nothing if it did not."""
    if not isinstance(result, Mapping):
        return ""
    if result.get("refused") is True:
        return "denied"
    code = find_exit_code(result)
    if code:
        return f"exit {code}"
    is_error = (find_message(result) or {}).get("status") == "error"
    return "failed" if is_error else ""
