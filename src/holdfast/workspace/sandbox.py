"""Runs a command in bubblewrap: the worktree can be written, the rest of the machine only read.

The spool's runner stays outside: it has to write the exit code where the command cannot. Whether bubblewrap works is
found out by running it; in containers it is often there and not allowed.
"""

import shutil
import subprocess
import tempfile
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


@dataclass(frozen=True)
class SandboxProbe:
    works: bool
    reason: str


def workspace_sandbox(
    workspace: Workspace, *, data_dir: Path, home: Path, env: Mapping[str, str], has_network: bool = True
) -> Sandbox:
    """The sandbox of a run: its worktree writable; git's data readable; our data and the user's keys out of sight."""
    return Sandbox(
        writable=(workspace.worktree,),
        read_only=(workspace.repo, workspace.worktree / ".git"),
        hidden=(data_dir.resolve(), *(home / place for place in SECRET_PLACES)),
        has_network=has_network,
        env=env,
    )


def to_sandboxed(sandbox: Sandbox, argv: Sequence[str], *, cwd: Path) -> list[str]:
    """The command line that runs `argv` inside. Later mounts lie over earlier ones, so the order is the policy."""
    command = ["bwrap", "--die-with-parent", "--new-session", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
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


def probe() -> SandboxProbe:
    """Run a small command in a sandbox: it must get out its answer, write inside and fail to write outside."""
    if shutil.which("bwrap") is None:
        return SandboxProbe(works=False, reason="bubblewrap is not installed (the command bwrap was not found).")
    with tempfile.TemporaryDirectory() as folder:
        inside, outside = Path(folder, "inside").resolve(), Path(folder, "outside").resolve()
        inside.mkdir()
        outside.mkdir()
        script = f"echo in > {inside}/file && ! touch {outside}/file 2>/dev/null && echo contained"
        sandbox = Sandbox(writable=(inside,), read_only=(outside,), env={"PATH": "/usr/bin:/bin"}, has_network=False)
        try:
            tried = subprocess.run(
                to_sandboxed(sandbox, ["/bin/sh", "-c", script], cwd=inside),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=20,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as failed:
            return SandboxProbe(works=False, reason=f"bubblewrap did not run: {failed}")
        if tried.returncode or tried.stdout.strip() != "contained" or (outside / "file").exists():
            lines = tried.stderr.strip().splitlines()
            return SandboxProbe(works=False, reason=f"bubblewrap failed: {lines[-1] if lines else tried.returncode}")
    return SandboxProbe(works=True, reason="bubblewrap contains commands on this machine.")
