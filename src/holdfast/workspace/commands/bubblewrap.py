"""Makes the command line of bubblewrap for a sandbox: an empty root, and in it only what the sandbox lists."""

from collections.abc import Sequence
from pathlib import Path

from holdfast.workspace.commands.confinement import FILTER_FD
from holdfast.workspace.commands.sandbox import Sandbox
from holdfast.workspace.commands.system_places import lies_in

FOLDER = "/run/holdfast"
"""Where in the sandbox our own files lie: the proxy's socket and the program that leads to it."""

_APART = ("--die-with-parent", "--new-session", "--unshare-user-try", "--unshare-pid", "--unshare-ipc")
_MORE_APART = ("--unshare-uts", "--unshare-cgroup-try", "--cap-drop", "ALL")


def to_sandboxed(
    sandbox: Sandbox, argv: Sequence[str], *, cwd: Path, program: str, has_filter: bool = False
) -> list[str]:
    """Return the command line that runs `argv` inside, by the bubblewrap `program`.

    Later mounts lie over earlier ones, so the order is the policy. With `has_filter` the starter gives the filter of
    system calls in a file descriptor, see `confinement`.
    """
    command = [program, *_APART, *_MORE_APART]
    if not sandbox.has_network:
        command.append("--unshare-net")
    if has_filter:
        command += ["--seccomp", str(FILTER_FD)]
    for path, target in sandbox.system:
        if path != target and not path.is_relative_to("/etc"):
            command += ["--symlink", str(target), str(path)]
        else:
            command += ["--ro-bind-try", str(target), str(path)]
    # Settings of the kernel belong to root, whatever root has given up: /proc can only be read.
    command += ["--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc"]
    for folder in ("/tmp", "/var/tmp", "/dev/shm", *_homes(sandbox)):  # noqa: S108 (inside)
        command += ["--size", str(sandbox.limits.temporary), "--tmpfs", folder]
    command += ["--symlink", "/run", "/var/run"]
    for words in _mounts(sandbox):
        command += words
    for path in sandbox.masked:
        command += _hide(path)
    command += ["--remount-ro", "/"]
    if not sandbox.inherits_env:
        command.append("--clearenv")
    for name, value in sandbox.env.items():
        command += ["--setenv", name, value]
    return [*command, "--chdir", str(cwd), "--", *argv]


def _homes(sandbox: Sandbox) -> list[str]:
    return [] if sandbox.home is None or sandbox.home == Path("/") else [str(sandbox.home.resolve())]


def _mounts(sandbox: Sandbox) -> list[list[str]]:
    """Order the places by depth: a place inside another one lies over it."""
    writable = [(path, path.resolve()) for path in sandbox.writable]
    read_only = [(path, path.resolve()) for path in sandbox.read_only]
    visible = [target for _, target in (*writable, *read_only, *sandbox.system)]
    hidden = [path for path in map(Path.resolve, sandbox.hidden) if any(lies_in(path, place) for place in visible)]
    mounts = [(path, _hide(path)) for path in hidden]
    mounts += [(target, ["--bind", str(path), str(path)]) for path, target in writable]
    mounts += [(target, ["--ro-bind", str(path), str(path)]) for path, target in read_only]
    if sandbox.git is not None:
        view = sandbox.git
        mounts.append((view.git_dir, ["--ro-bind", str(view.git_dir), str(view.git_dir)]))
        link = view.worktree / ".git"
        mounts.append((link, ["--ro-bind", str(view.link), str(link)]))
    return [words for _, words in sorted(mounts, key=lambda mount: len(mount[0].parts))]


def _hide(path: Path) -> list[str]:
    real = path.resolve()
    if real.is_dir():
        return ["--tmpfs", str(real), "--remount-ro", str(real)]
    return ["--ro-bind", "/dev/null", str(real)] if real.exists() else []
