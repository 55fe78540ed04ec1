"""A call in one line, as every list, page and question shows it: `$ git push origin main`, or the tool and its subject.

Rule: an agent wrote the arguments. The line is safe to print, and says so if it is not the whole call: nobody is to
allow what they did not see. Which argument says what a call does is known by its tool, never by its own name.
"""

import json
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

ENGINE, AGENT = "engine", "agent"
"""Who makes a call, as its event and its question say in `caller`, which no model writes."""
_SHELL = "execute"
_LINE_CHARS = 200
_SUBJECT_CHARS = 60
_QUESTION_CHARS = 100
_MOST_SAYING_FIRST = ("command", "file_path", "pattern", "path", "query", "url", "description")


class _Tool(NamedTuple):
    subject: tuple[str, ...] = ()
    """The arguments that say what the call does."""
    others: frozenset[str] = frozenset()
    """Arguments that it has as a rule, and of which the line need not speak."""


_TOOLS: Mapping[str, _Tool] = {
    _SHELL: _Tool(("command",), frozenset({"timeout"})),
    "ls": _Tool(("path",)),
    "read_file": _Tool(("file_path",), frozenset({"offset", "limit"})),
    "write_file": _Tool(("file_path",), frozenset({"content"})),
    "edit_file": _Tool(("file_path",), frozenset({"old_string", "new_string", "replace_all"})),
    "delete": _Tool(("file_path",)),
    "glob": _Tool(("pattern", "path")),
    "grep": _Tool(("pattern", "path"), frozenset({"glob", "output_mode", "max_count"})),
    "task": _Tool(("description",), frozenset({"subagent_type"})),
    "web_fetch": _Tool(("url",)),
    "web_search": _Tool(("query",)),
}
_AGENT_TOOL = "agent"
_AGENT_ARGS = frozenset({"argv", "model", "envelope"})
"""How a coding agent is called, by the engine itself; the envelope is named by its hash."""
_COMMAND_TOOLS = ("check", "hook")


def describe_line(details: Mapping[str, Any], most: int = _LINE_CHARS) -> str:
    """Write a call as one line: a command with its `$`, else the tool with what it is about."""
    subject = describe_subject(details, most)
    if find_argv(details) is not None or _is_shell_line(details):
        return f"$ {subject}"
    return f"{_cut(str(details.get('tool') or details.get('key') or ''), most)} {subject}".strip()


def describe_call(details: Mapping[str, Any], most: int = _LINE_CHARS) -> str:
    """Write a call in a few words: the command line, or the tool and what it is about; nothing if it has neither."""
    subject = describe_subject(details, most)
    if find_argv(details) is not None:
        return subject
    return f"{_cut(str(details.get('tool') or ''), most)} {subject}".strip()


def describe_subject(details: Mapping[str, Any], most: int = _LINE_CHARS) -> str:
    """Write what a call is about, and of how many arguments this says nothing."""
    if (argv := find_argv(details)) is not None:
        return _cut(shlex.join(argv), most)
    args = details.get("args")
    if not isinstance(args, Mapping):
        return ""
    tool = _TOOLS.get(str(details.get("tool")), _Tool())
    subject = {name: args[name] for name in tool.subject if isinstance(args.get(name), str)}
    if not subject:
        return _list_arguments(_sort(args), most)
    more = len(args.keys() - tool.others - subject.keys())
    return f"{_list_arguments(subject, most)}{_announce(more, 'argument')}"


def find_argv(details: Mapping[str, Any]) -> list[str] | None:
    """Return the words of a command that is all there is to a call: one of the template, or a coding agent.

    A model chooses the arguments of every other call. A list of that name among them is one more argument, which must
    not stand for what the call does.
    """
    args, argv = details.get("args"), details.get("argv")
    if args is not None:
        argv = args.get("argv") if isinstance(args, Mapping) and _is_of_engine(details, args) else None
    return [str(part) for part in argv] if argv and isinstance(argv, list) else None


def _is_of_engine(details: Mapping[str, Any], args: Mapping[str, Any]) -> bool:
    caller, tool, policy = (details.get(name) for name in ("caller", "tool", "policy"))
    if caller is not None:
        return bool(caller == ENGINE)
    # Journals of before there was a caller: what the engine's calls had, and those of a model hardly could have.
    if tool == _AGENT_TOOL:
        return args.keys() <= _AGENT_ARGS
    rule = policy.get("rule") if isinstance(policy, Mapping) else None
    return tool in _COMMAND_TOOLS and args.keys() == {"argv"} and rule == "no-sandbox"


def ask_about_call(details: Mapping[str, Any]) -> str:
    """Ask whether a call may be made, with the call itself."""
    line = describe_line(details, _QUESTION_CHARS)
    return f"May the agent {'run' if line.startswith('$ ') else 'call'} “{line}”?"


def quote_name(name: str) -> str:
    """Return the name of an argument, quoted unless it is a plain word: it is to look like no other argument."""
    is_plain = name.isprintable() and name.replace("-", "_").replace(".", "_").isidentifier()
    return name if is_plain else json.dumps(name)


def quote_value(value: Any) -> str:
    """Return the value of one argument of several; a text is quoted where it could be taken for more of them."""
    is_plain = isinstance(value, str) and ", " not in value and '"' not in value
    return str(value) if is_plain else json.dumps(value, ensure_ascii=False, default=str)


def _is_shell_line(details: Mapping[str, Any]) -> bool:
    args = details.get("args")
    return details.get("tool") == _SHELL and isinstance(args, Mapping) and isinstance(args.get("command"), str)


def _sort(args: Mapping[str, Any]) -> dict[str, Any]:
    """Sort arguments, those first that usually say most: the last ones may find no place."""
    return {**{name: args[name] for name in _MOST_SAYING_FIRST if name in args}, **args}


def _list_arguments(args: Mapping[str, Any], most: int) -> str:
    """Write a text alone as it is, several arguments with their names as far as there is room, and count the rest."""
    if len(args) == 1 and isinstance(only := next(iter(args.values())), str):
        return _cut(only, most)
    parts: list[str] = []
    for name, value in args.items():
        part = f"{_cut(quote_name(name), _SUBJECT_CHARS)}: {_cut(quote_value(value), _SUBJECT_CHARS)}"
        if parts and sum(map(len, parts)) + len(part) > most:
            break
        parts.append(part)
    return f"{', '.join(parts)}{_announce(len(args) - len(parts), 'argument')}"


def _cut(text: str, most: int) -> str:
    """Return the first line of a text without what a terminal would obey, and how much more there is."""
    lines = text.strip().splitlines() or [""]
    lines[0] = "".join(letter if letter.isprintable() else "\ufffd" for letter in lines[0])
    line = f"{lines[0][: most - 1]}…" if len(lines[0]) > most else lines[0]
    return f"{line}{_announce(len(lines) - 1, 'line')}"


def _announce(more: int, what: str) -> str:
    return f" … (+{more} {what}{'s' if more > 1 else ''})" if more > 0 else ""
