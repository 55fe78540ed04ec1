"""Makes the command line of bubblewrap for a sandbox: an empty root, and in it only what the sandbox lists."""

from collections.abc import Sequence
from pathlib import Path

from holdfast.workspace.commands.confinement import FILTER_FD
from holdfast.workspace.commands.sandbox import Sandbox

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
    for path in sandbox.system:
        command += _show_system(path)
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
    visible = [*sandbox.writable, *sandbox.read_only, *sandbox.system]
    mounts = [
        (path, _hide(path))
        for path in sandbox.hidden
        if any(path.resolve().is_relative_to(place.resolve()) for place in visible)
    ]
    mounts += [(path, ["--bind", str(path), str(path)]) for path in sandbox.writable]
    mounts += [(path, ["--ro-bind", str(path), str(path)]) for path in sandbox.read_only]
    if sandbox.git is not None:
        view = sandbox.git
        mounts.append((view.git_dir, ["--ro-bind", str(view.git_dir), str(view.git_dir)]))
        link = view.worktree / ".git"
        mounts.append((link, ["--ro-bind", str(view.link), str(link)]))
    return [words for _, words in sorted(mounts, key=lambda mount: len(mount[0].resolve().parts))]


def _show_system(path: Path) -> list[str]:
    if path.is_symlink() and not path.is_relative_to("/etc"):
        return ["--symlink", str(path.readlink()), str(path)]
    return ["--ro-bind", str(path.resolve()), str(path)]


def _hide(path: Path) -> list[str]:
    real = path.resolve()
    if real.is_dir():
        return ["--tmpfs", str(real), "--remount-ro", str(real)]
    return ["--ro-bind", "/dev/null", str(real)] if real.exists() else []
