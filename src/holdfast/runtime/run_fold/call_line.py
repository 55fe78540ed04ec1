"""A call in one line, as a person is asked about it: `$ git push origin main`, or the tool and what it is about.

Rule: an agent wrote the arguments. The line is safe to print, and says so if it is not the whole call: nobody is to
allow what they did not see.
"""

import shlex
from collections.abc import Mapping
from typing import Any

from holdfast.runtime.event_text import find_argv
from holdfast.runtime.run_fold.payload_text import MOST_SAYING_FIRST, brief, first_line

_SHELL = "execute"
_LINE_CHARS = 200
_SUBJECT_CHARS = 60
_QUESTION_CHARS = 100


def describe_line(details: Mapping[str, Any], most: int = _LINE_CHARS) -> str:
    """Write a call as one line: a command with its `$`, else the tool with what says most about it."""
    if (argv := find_argv(details)) is not None:
        return f"$ {_cut(shlex.join(argv), most)}"
    tool = str(details.get("tool") or details.get("key") or "")
    args = details.get("args")
    args = args if isinstance(args, Mapping) else {}
    command = args.get("command")
    if tool == _SHELL and isinstance(command, str):
        return f"$ {_cut(command, most)}{_announce(len(args) - 1, 'argument')}"
    return f"{tool} {_cut(_name_subject(args), most)}".strip()


def _name_subject(args: Mapping[str, Any]) -> str:
    """Return the argument that says most, or all that could: which of them the tool heeds is not known here."""
    texts = {name: args[name] for name in MOST_SAYING_FIRST if isinstance(args.get(name), str)}
    if len(texts) < 2:
        return brief(dict(args))
    return ", ".join(f"{name}: {first_line(text, _SUBJECT_CHARS)}" for name, text in texts.items())


def ask_about_call(details: Mapping[str, Any]) -> str:
    """Ask whether a call may be made, with the call itself."""
    line = describe_line(details, _QUESTION_CHARS)
    return f"May the agent {'run' if line.startswith('$ ') else 'call'} “{line}”?"


def _cut(text: str, most: int) -> str:
    """Return the first line of a text without what a terminal would obey, and how much more there is."""
    lines = text.strip().splitlines() or [""]
    lines[0] = "".join(letter if letter.isprintable() else "\ufffd" for letter in lines[0])
    line = f"{lines[0][: most - 1]}…" if len(lines[0]) > most else lines[0]
    return f"{line}{_announce(len(lines) - 1, 'line')}"


def _announce(more: int, what: str) -> str:
    return f" … (+{more} {what}{'s' if more > 1 else ''})" if more else ""
