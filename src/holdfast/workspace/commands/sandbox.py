"""Runs a command in bubblewrap: the worktree can be written, the rest of the machine only read.

The spool's runner stays outside: it has to write the exit code where the command cannot. Which bubblewrap, if one
works here, `bubblewrap.find_bubblewrap` says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.workspace.worktree import Workspace

# Where people's keys lie, relative to their home folder.
SECRET_PLACES = (".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".config/gcloud", ".config/gh")


@dataclass(frozen=True)
class Sandbox:
    """What a command may do: write in `writable`, read all else but `hidden`; of two places that hold each other the
    inner one decides. `masked` is out of sight in any case.

    With `inherits_env` the command has the environment of whoever starts it, and `env` besides: what stands in `env` is
    seen in the command line.
    """

    writable: tuple[Path, ...]
    read_only: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    masked: tuple[Path, ...] = ()
    has_network: bool = True
    env: Mapping[str, str] = field(default_factory=dict)
    inherits_env: bool = False


def workspace_sandbox(
    workspace: Workspace, *, data_dir: Path, home: Path, env: Mapping[str, str], has_network: bool = True
) -> Sandbox:
    """Return a run's sandbox: its worktree writable; git's data readable; our data and the user's keys out of sight."""
    return Sandbox(
        writable=(workspace.worktree,),
        read_only=(workspace.repo, workspace.worktree / ".git"),
        hidden=(data_dir.resolve(), *(home / place for place in SECRET_PLACES)),
        has_network=has_network,
        env=env,
    )


def to_sandboxed(sandbox: Sandbox, argv: Sequence[str], *, cwd: Path, program: str) -> list[str]:
    """Return the command line that runs `argv` inside, by the bubblewrap `program`.

    Later mounts lie over earlier ones, so the order is the policy.
    """
    command = [program, "--die-with-parent", "--new-session", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    if not sandbox.has_network:
        command.append("--unshare-net")
    command += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]  # noqa: S108 (inside)
    mounts = [(path, _hide(path)) for path in sandbox.hidden]
    mounts += [(path, ["--bind", str(path), str(path)]) for path in sandbox.writable]
    mounts += [(path, ["--ro-bind", str(path), str(path)]) for path in sandbox.read_only]
    for _, words in sorted(mounts, key=lambda mount: len(mount[0].resolve().parts)):
        command += words
    for path in sandbox.masked:
        command += _hide(path)
    if not sandbox.inherits_env:
        command.append("--clearenv")
    for name, value in sandbox.env.items():
        command += ["--setenv", name, value]
    return [*command, "--chdir", str(cwd), "--", *argv]


def _hide(path: Path) -> list[str]:
    real = path.resolve()
    if real.is_dir():
        return ["--tmpfs", str(real)]
    return ["--ro-bind", "/dev/null", str(real)] if real.exists() else []
