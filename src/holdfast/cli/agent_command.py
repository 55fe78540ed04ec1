"""Whether this process was started by a command that holdfast runs for an agent: then it decides and spends nothing.

A courtesy with a clear answer, not the wall. In a sandbox neither the database nor a socket of the server is there;
what runs without one was approved by a person, or they chose to go without. The mark is one that an agent cannot take
off: an ancestor's command line. A variable says the same where a process has lost its ancestors.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from holdfast.errors import InsideAgentCommand

VARIABLES = ("HOLDFAST_AGENT_COMMAND", "HOLDFAST_SPOOL")
_RUNNER = "/workspace/commands/spool_runner.py"
_PROC = Path("/proc")
_MOST_ANCESTORS = 200
# What only shows something; every other command is refused, those to come too.
_READING = {
    *(f"commands.runs.{name}" for name in ("list", "show", "events", "logs", "watch", "diff")),
    *("commands.workflows", "commands.personas", "commands.explain", "commands.doctor"),
    *("commands.db:check", "commands.token:list_all", "commands.approvals:approvals"),
    *("commands.approvals:show_approval", "commands.budget:budget", "demo.__main__:demo"),
}


def is_reading(target: str) -> bool:
    """Tell whether a command, `module:function`, only shows something."""
    return target in _READING or target.partition(":")[0] in _READING


def refuse_inside_agent_command(what: str) -> None:
    """Raise `InsideAgentCommand`, in the name of a command, if an agent's command started this process."""
    if is_inside_agent_command(os.environ):
        raise InsideAgentCommand(f"{what} is not for a command that holdfast runs for an agent.")


def is_inside_agent_command(environ: Mapping[str, str]) -> bool:
    if any(name in environ for name in VARIABLES):
        return True
    return any(_is_of_holdfast(words) for words in _list_command_lines(os.getpid()))


def _is_of_holdfast(words: list[str]) -> bool:
    """Tell whether a command line is that of the runner of commands, or of the sandbox around one."""
    program = os.path.basename(words[0]) if words else ""  # noqa: PTH119 - any bytes, not a path of ours
    if program.startswith("python"):
        return any(word.endswith(_RUNNER) for word in words[1:5])
    return program == "bwrap" and VARIABLES[0] in words


def _list_command_lines(pid: int) -> Iterator[list[str]]:
    """List the command lines of the processes above this one, as far as they can be seen from here."""
    for _ in range(_MOST_ANCESTORS):
        try:
            stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
            pid = int(stat.rpartition(")")[2].split()[1])
            yield (_PROC / str(pid) / "cmdline").read_text(errors="replace").split("\0")
        except (OSError, ValueError, IndexError):
            return
