"""A call in one line, as a person is asked about it: `$ git push origin main`, or the tool and what it is about.

Rule: an agent wrote the arguments. The line is safe to print, and says so if it is not the whole call: nobody is to
allow what they did not see.
"""

import shlex
from collections.abc import Mapping
from typing import Any

from holdfast.runtime.run_fold.payload_text import brief

_LINE_CHARS = 200
_QUESTION_CHARS = 100


def describe_line(details: Mapping[str, Any], most: int = _LINE_CHARS) -> str:
    """Write a call as one line: a command with its `$`, else the tool with what says most about it."""
    args = details.get("args")
    args = args if isinstance(args, Mapping) else {}
    argv = args.get("argv") or details.get("argv")
    command = shlex.join(map(str, argv)) if isinstance(argv, list) else args.get("command")
    if isinstance(command, str):
        return f"$ {_cut(command, most)}"
    tool = str(details.get("tool") or details.get("key") or "")
    return f"{tool} {_cut(brief(dict(args)), most)}".strip()


def ask_about_call(details: Mapping[str, Any]) -> str:
    """Ask whether a call may be made, with the call itself."""
    line = describe_line(details, _QUESTION_CHARS)
    return f"May the agent {'run' if line.startswith('$ ') else 'call'} “{line}”?"


def _cut(text: str, most: int) -> str:
    """Return the first line of a text without what a terminal would obey, and how much more there is."""
    lines = text.strip().splitlines() or [""]
    lines[0] = "".join(letter if letter.isprintable() else "\ufffd" for letter in lines[0])
    line = f"{lines[0][: most - 1]}…" if len(lines[0]) > most else lines[0]
    more = len(lines) - 1
    return f"{line} … (+{more} line{'s' if more > 1 else ''})" if more else line
