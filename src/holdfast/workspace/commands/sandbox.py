"""What a sandboxed command sees of the machine and what it may use: the rules, whoever in the kernel keeps them.

The sandbox denies by default. A command sees its worktree, a home and a folder for temporary files of its own, the
system's folders, the tools on `PATH`, and what the persona lists. How that is brought about, `bubblewrap` and
`landlock` say; which of them works here, `sandbox_probe`.
"""

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from holdfast.workspace.commands.system_places import (
    SYSTEM_FILES,
    SYSTEM_FOLDERS,
    TOOLCHAINS,
    find_interpreters,
    find_tools,
)
from holdfast.workspace.worktree import Workspace

# Where people's keys lie, relative to their home folder. Out of sight even where a place around them is visible.
SECRET_PLACES = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".config/gcloud", ".config/gh", ".pgpass"),
    *(".vault-token", ".config/rclone", ".npmrc", ".pypirc", ".git-credentials", ".config/git/credentials"),
    *(".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".my.cnf", ".config/op", ".terraform.d"),
    *(".claude", ".claude.json", ".codex", ".gemini", ".config/openai", ".config/anthropic", ".password-store"),
    *(".bash_history", ".zsh_history", ".python_history", ".local/share/keyrings", ".mozilla", ".config/google-chrome"),
)


class SandboxKind(StrEnum):
    """What keeps the rules: namespaces and mounts, or rules on files and system calls."""

    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"


_GIB = 1024**3


def _find_machine_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@dataclass(frozen=True)
class ResourceLimits:
    """How much a command may use, with all that it starts; a file's size and the processor's time also by itself."""

    memory: int = field(default_factory=lambda: max(_GIB, _find_machine_memory() * 3 // 4))
    processes: int = 2048
    cpu_s: int = 4 * 3600
    file_size: int = 16 * _GIB
    temporary: int = 4 * _GIB
    free_disk: int = _GIB // 4
    """What has to stay free on the workspace's disk; a command that takes it is ended."""

    @property
    def of_process(self) -> dict[str, int]:
        """The limits that the kernel keeps for each process. Others of the user's processes count for the number."""
        return {
            "RLIMIT_CPU": self.cpu_s,
            "RLIMIT_DATA": self.memory,
            "RLIMIT_FSIZE": self.file_size,
            "RLIMIT_NPROC": self.processes + 8192,
            "RLIMIT_CORE": 0,
        }

    @property
    def of_all(self) -> dict[str, int]:
        """The limits that the runner keeps for all processes of the command together."""
        totals = {"memory": self.memory, "processes": self.processes, "cpu_s": self.cpu_s}
        return {**totals, "free_disk": self.free_disk}


@functools.cache
def _find_system() -> list[tuple[Path, Path]]:
    """Find what there is of the system's folders and files; looked for once, since it takes longer than a command."""
    return [(path, path.resolve()) for name in (*SYSTEM_FOLDERS, *SYSTEM_FILES) if (path := Path(name)).exists()]


@dataclass(frozen=True)
class GitView:
    """A git directory made for a sandbox, and the file that leads to it in the place of the worktree's own."""

    git_dir: Path
    link: Path
    worktree: Path


@dataclass(frozen=True)
class Sandbox:
    """What a command may do: write in `writable`, read in `read_only`; of two places that hold each other the inner one
    decides. `hidden` and `masked` are out of sight; the latter in any case.

    With `inherits_env` the command has the environment of whoever starts it, and `env` besides: what stands in `env` is
    seen in the command line. Without `has_network` it reaches only `hosts`, by a proxy.
    """

    writable: tuple[Path, ...]
    read_only: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    masked: tuple[Path, ...] = ()
    has_network: bool = False
    hosts: tuple[str, ...] = ()
    can_share_ports: bool = False
    """Where only ports can be told apart, the ports of the proxy and of listed hosts of this machine are open to any
    host, rather than nothing being reached."""
    home: Path | None = None
    """The user's home folder, in whose place there is an empty one."""
    own_home: Path | None = None
    """A folder that the command has as its home and cache instead, as an earlier command left it."""
    git: GitView | None = None
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    env: Mapping[str, str] = field(default_factory=dict)
    inherits_env: bool = False

    @property
    def home_variables(self) -> dict[str, str]:
        """The variables by which programs find `own_home`, and tools that would look for themselves in a home."""
        if self.own_home is None:
            return {}
        return {"HOME": str(self.own_home), "XDG_CACHE_HOME": str(self.own_home / ".cache"), **self.toolchains}

    @property
    def toolchains(self) -> dict[str, str]:
        """The variables that lead to the folders of tools in the user's home."""
        places = {variable: self.home / name for name, variable in TOOLCHAINS.items() if variable and self.home}
        return {variable: str(place) for variable, place in places.items() if place in self.read_only}

    @property
    def system(self) -> list[tuple[Path, Path]]:
        """The folders and files of the system, each with what it is if it is a link."""
        found = _find_system()
        resolver = Path("/etc/resolv.conf")
        return [*found, (resolver, resolver.resolve())] if self.has_network and resolver.exists() else found


def workspace_sandbox(
    workspace: Workspace, *, data_dir: Path, home: Path, env: Mapping[str, str], has_network: bool = False
) -> Sandbox:
    """Return a run's sandbox: its worktree writable, its git directory not; neither our data nor the user's files."""
    sandbox = open_sandbox(workspace.worktree, data_dir=data_dir, home=home, source=workspace.source)
    git_file = workspace.worktree / ".git"
    return Sandbox(
        writable=(workspace.worktree,),
        read_only=(*sandbox.read_only, git_file),
        hidden=sandbox.hidden,
        home=home,
        has_network=has_network,
        env=env,
    )


def open_sandbox(folder: Path, *, data_dir: Path, home: Path, source: Path | None = None) -> Sandbox:
    """Return the sandbox of a folder that can be written, with the tools on `PATH`; `source` is the user's checkout."""
    private = (data_dir.resolve(), *([source] if source is not None else []))
    tools = find_tools(os.environ.get("PATH", ""), home=home, private=private)
    tools += find_interpreters(folder, home=home, private=private)
    git_dir = folder / ".git"
    return Sandbox(
        writable=(folder,),
        read_only=(*tools, *([git_dir] if git_dir.exists() else [])),
        hidden=(data_dir.resolve(), *(home / place for place in SECRET_PLACES)),
        home=home,
    )
