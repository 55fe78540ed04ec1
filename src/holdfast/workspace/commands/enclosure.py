"""Puts a command into a sandbox by what works here: its command line, and the rules that its runner applies."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.workspace.commands import network_proxy
from holdfast.workspace.commands.bubblewrap import FOLDER, to_sandboxed
from holdfast.workspace.commands.confinement import find_abi
from holdfast.workspace.commands.landlock import knows_ports, knows_truncate, to_environment, to_rules
from holdfast.workspace.commands.sandbox import Sandbox, SandboxKind
from holdfast.workspace.commands.sandbox_probe import SandboxProbe
from holdfast.workspace.commands.seccomp import build_filter, list_guarded

_LEADER = f"{FOLDER}/network_proxy.py"


@dataclass(frozen=True)
class Enclosed:
    """A command in its sandbox: `argv` to start, and the rules that its runner applies (see `SpoolOptions`), if any."""

    argv: list[str]
    confinement: dict[str, Any] | None


def enclose(sandbox: Sandbox, argv: Sequence[str], *, cwd: Path, folder: Path, probe: SandboxProbe) -> Enclosed:
    """Put a command into a sandbox of the kind that was found to work; `folder` is the command's own in the spool."""
    if probe.kind is SandboxKind.LANDLOCK:
        return _by_landlock(sandbox, argv, folder / "scratch")
    rules = _rules(sandbox, build_filter(has_network=True, has_unix_sockets=True, is_apart=True))
    if sandbox.hosts and not sandbox.has_network:
        rules["hosts"] = list(sandbox.hosts)
        sandbox, argv = _lead_to_proxy(sandbox, argv)
        extra = ["--ro-bind", str(folder / "proxy"), f"{FOLDER}/proxy", "--ro-bind", network_proxy.__file__, _LEADER]
    else:
        extra = []
    # Without one that works this fails, as it must: what is to be contained does not run free.
    line = to_sandboxed(sandbox, argv, cwd=cwd, program=probe.program or "bwrap", has_filter=True)
    return Enclosed([line[0], *extra, *line[1:]], rules)


def _lead_to_proxy(sandbox: Sandbox, argv: Sequence[str]) -> tuple[Sandbox, list[str]]:
    """Let a command find the proxy. What leads to it is a Python program, so our own Python is visible inside."""
    env = {**sandbox.env, **network_proxy.to_proxy_environment(network_proxy.PORT)}
    python = Path(sys.executable).resolve()
    prefix = Path(sys.base_prefix).resolve()
    visible = (*sandbox.read_only, *(() if prefix == Path("/usr") else (prefix,)))
    ports = ",".join(map(str, network_proxy.find_own_ports(sandbox.hosts)))
    leader = [str(python), "-I", "-S", _LEADER, f"{FOLDER}/proxy/socket", ports]
    return replace(sandbox, env=env, read_only=visible), [*leader, *argv]


def _by_landlock(sandbox: Sandbox, argv: Sequence[str], scratch: Path) -> Enclosed:
    """Use rules on files and system calls. Hosts cannot be told apart by them, so a list of hosts means no network.

    What cannot do without and has leave for it (`can_share_ports`) gets the port of a proxy; on a kernel that does not
    know ports, the whole network.
    """
    abi = find_abi()
    is_shared = bool(sandbox.hosts) and sandbox.can_share_ports and not sandbox.has_network
    is_by_port = is_shared and knows_ports(abi)
    if is_shared and not is_by_port:
        sandbox = replace(sandbox, has_network=True)
    program = build_filter(
        has_network=sandbox.has_network,
        has_unix_sockets=False,
        has_truncate=knows_truncate(abi),
        is_tcp_only=is_by_port,
    )
    rules = _rules(sandbox, program)
    if is_by_port:
        rules["hosts"] = list(sandbox.hosts)
    rules["guarded"] = list_guarded()
    rules["landlock"] = to_rules(sandbox, abi=abi, scratch=scratch)
    rules["folders"] = [str(scratch), *(str(scratch / name) for name in ("home", "tmp"))]
    if sandbox.git is not None and any(sandbox.git.worktree.is_relative_to(place) for place in sandbox.writable):
        own = sandbox.git.worktree / ".git"
        rules["restored"] = [[str(own), own.read_text()]] if own.is_file() else []
    rules["env"] = {**sandbox.env, **to_environment(sandbox, scratch)}
    rules["inherits_env"] = sandbox.inherits_env
    return Enclosed(list(argv), rules)


def _rules(sandbox: Sandbox, program: bytes) -> dict[str, Any]:
    return {
        "limits": sandbox.limits.of_process,
        "watched": sandbox.limits.of_all,
        "filter": program.hex(),
        "landlock": None,
        "folders": [],
        "restored": [],
    }
