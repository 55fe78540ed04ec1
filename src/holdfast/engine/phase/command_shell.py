"""Where the commands of a template run: in the sandbox, unless the template or a person says otherwise.

Checks and hooks run code that an agent wrote, and so does a set-up that is repeated after an agent has worked. Rule:
such code never runs outside unasked. A set-up on the files of the base commit is the user's own code.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path

from holdfast.agents.tools.shell import Shell, open_shell
from holdfast.engine.scope import RunScope
from holdfast.workspace.copied_files import read_copied

# What a set-up that is repeated reaches where the template names no hosts: where packages come from.
PACKAGE_HOSTS = (
    *("pypi.org", "files.pythonhosted.org", "registry.npmjs.org", "registry.yarnpkg.com", "rubygems.org"),
    *("crates.io", "index.crates.io", "static.crates.io", "proxy.golang.org", "sum.golang.org"),
    *("repo.maven.apache.org", "repo1.maven.org", "plugins.gradle.org", "api.nuget.org", "packagist.org"),
)


class CommandKind(StrEnum):
    """What a command of a template is for, by the words of the template."""

    SETUP = "setup"
    CHECKS = "checks"
    HOOKS = "hooks"


@dataclass(frozen=True)
class CommandShell:
    """The shell of one command. Without a sandbox `free_by` says who chose that; nobody has if it is empty."""

    shell: Shell
    kind: CommandKind
    is_of_agent: bool
    """The command runs code that an agent may have written."""
    sandbox: str
    free_by: str = ""

    @property
    def must_ask(self) -> bool:
        """Whether a person has to allow it first."""
        return self.is_of_agent and self.sandbox == "none" and not self.free_by

    @property
    def is_contained(self) -> bool:
        """Whether it can reach nothing but the files of the run."""
        return self.shell.changes_worktree_only

    @property
    def facts(self) -> dict[str, str]:
        """What of it is recorded with the command's result."""
        return {"sandbox": self.sandbox, **({"unsandboxed_by": self.free_by} if self.free_by else {})}


def open_command_shell(scope: RunScope, kind: CommandKind, env: Mapping[str, str]) -> CommandShell:
    """Open the shell for a command of the template. `env` is what it gets beside the harmless variables."""
    has_worked = scope.history.started_at > 0 or scope.run.forked_from is not None
    is_of_agent = kind is not CommandKind.SETUP or has_worked
    shell = open_shell(
        scope.place.root,
        data_dir=scope.config.data_dir,
        workspace=scope.place,
        is_secret_allowed=lambda path: not is_of_agent or _is_visible(scope, path),
    )
    shell = replace(shell, env=env)
    free_by = _find_chooser(scope, kind, is_of_agent=is_of_agent)
    found = scope.find_sandbox()
    if free_by or shell.sandbox is None or found.kind is None:
        return CommandShell(replace(shell, sandbox=None), kind, is_of_agent, "none", free_by)
    rules = scope.template.sandbox
    places = [Path(place).expanduser().resolve() for place in rules.readable]
    home = scope.place.state_dir / "home"
    home.mkdir(mode=0o700, exist_ok=True)
    hosts, has_network = _find_network(scope, kind, is_of_agent=is_of_agent)
    sandbox = replace(
        shell.sandbox,
        read_only=(*shell.sandbox.read_only, *(place for place in places if place.exists())),
        hidden=tuple(place for place in shell.sandbox.hidden if place.resolve() not in places),
        writable=(*shell.sandbox.writable, home),
        own_home=home,
        hosts=hosts,
        inherits_env=True,
    )
    shell = replace(shell, sandbox=sandbox, has_network=has_network, is_opened=bool(rules.readable))
    return CommandShell(shell, kind, is_of_agent, found.kind)


def _find_chooser(scope: RunScope, kind: CommandKind, *, is_of_agent: bool) -> str:
    """Return who chose that the command runs without a sandbox: a person for the run, or the workflow."""
    if scope.history.unsandboxed_by is not None:
        return scope.history.unsandboxed_by or "a person"
    is_off = kind.value in scope.template.sandbox.switched_off
    if kind is CommandKind.SETUP and is_of_agent:
        # The workflow let its own set-up go free; that holds for an agent's code only if its checks go free as well.
        is_off = is_off and not scope.template.sandbox.checks
    return f"workflow {scope.template.name}" if is_off else ""


def _find_network(scope: RunScope, kind: CommandKind, *, is_of_agent: bool) -> tuple[tuple[str, ...], bool]:
    """Return the hosts that a command reaches, and whether it has the whole network."""
    network = scope.template.sandbox.network
    if network is None:
        is_repeated = kind is CommandKind.SETUP and is_of_agent
        return (PACKAGE_HOSTS if is_repeated else ()), not is_of_agent
    return ((), network == "allow") if isinstance(network, str) else (network, False)


def _is_visible(scope: RunScope, path: Path) -> bool:
    """Tell whether a command may read a file that is named like a secret: the template copies or names it."""
    name = path.relative_to(scope.place.worktree).as_posix()
    below = path.relative_to(scope.place.root).as_posix()
    return name in read_copied(scope.place) or any(
        fnmatchcase(below, pattern) for pattern in scope.template.sandbox.secrets
    )
