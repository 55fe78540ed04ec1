"""The sandbox around a command-line coding agent: as for every command, with what such a program needs of its own."""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.agents.tools.shell import Shell
from holdfast.persona import AgentPersona, Verdict
from holdfast.workspace import Sandbox
from holdfast.workspace.commands.system_places import find_tools


def to_own_shell(
    shell: Shell,
    persona: AgentPersona,
    *,
    env: Mapping[str, str],
    readable: Sequence[Path] = (),
    writable: Sequence[Path] = (),
    hosts: Sequence[str] = (),
) -> Shell:
    """Return the shell in which the persona's command runs; `readable` and `writable` are what we hand to it.

    Such an agent has its own account and talks to its own provider: `hosts`, where they are known, and otherwise the
    whole network unless the persona denies it. Without a sandbox, or if the persona says so, it runs as any other
    program of the user's does.
    """
    rules = persona.sandbox
    if shell.sandbox is None or not rules.is_on:
        return replace(shell, sandbox=None, env=env)
    own_read = [*map(_expand, rules.read), *_find_program(persona, shell.sandbox.hidden[:1]), *readable]
    # The workspace in any case, also in a phase that only reads: this is the only way to hand in the artifact.
    own_write = [shell.cwd, *map(_expand, rules.write), *writable]
    sandbox = _open(shell.sandbox, read=own_read, write=own_write)
    reached = _find_hosts(persona, hosts)
    has_network = persona.permissions.network is not Verdict.DENY and not reached
    sandbox = replace(sandbox, inherits_env=True, hosts=reached, can_share_ports=True)
    return replace(shell, sandbox=sandbox, has_network=has_network, env=env)


def changes_worktree_only(persona: AgentPersona, shell: Shell) -> bool:
    """Tell whether the agent can change the worktree and nothing else: it is in a sandbox, and reaches nobody."""
    rules = persona.sandbox
    is_alone = persona.permissions.network is Verdict.DENY and not (rules.read or rules.write)
    return rules.is_on and is_alone and replace(shell, has_network=False).changes_worktree_only


def _find_hosts(persona: AgentPersona, hosts: Sequence[str]) -> tuple[str, ...]:
    """Return all that the agent reaches: its provider and what the persona lists; nothing where no list is in force."""
    permissions = persona.permissions
    if permissions.network is Verdict.DENY or (permissions.network is Verdict.ALLOW and not permissions.hosts):
        return ()
    return tuple(dict.fromkeys([*hosts, *permissions.hosts]))


def _open(sandbox: Sandbox, *, read: Sequence[Path], write: Sequence[Path]) -> Sandbox:
    """Open more places in a sandbox. A hidden place inside an opened one stays hidden, unless it is named itself."""
    return replace(
        sandbox,
        hidden=tuple(place for place in sandbox.hidden if place.resolve() not in (*read, *write)),
        writable=(*sandbox.writable, *(path for path in write if path.exists())),
        read_only=tuple(path for path in (*sandbox.read_only, *read) if path.exists() and path not in write),
    )


def _expand(place: str) -> Path:
    return Path(place).expanduser().resolve()


def _find_program(persona: AgentPersona, hidden: Sequence[Path]) -> list[Path]:
    """Find the program and the installation that it belongs to, wherever it lies; of a lone file only that file."""
    found = shutil.which((persona.argv or ("",))[0])
    if found is None:
        return []
    program = Path(found)
    home = Path(os.environ.get("HOME") or "/root").resolve()
    places = find_tools(str(program.parent), home=home, private=hidden)
    return [program.resolve(), *(place for place in places if place != program.parent.resolve())]
