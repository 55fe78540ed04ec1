"""Brings files that git does not carry (`.env`, local settings) from the user's folder into the workspace.

What was copied is on a list, and snapshots leave the listed paths out: a copied secret never gets into git's objects.
The list is kept here and applied when a tree is built, because git's own `info/exclude` is shared by all worktrees.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from holdfast.errors import WorkspaceError
from holdfast.workspace.files import hold_lock, is_within, own_folders, write_whole
from holdfast.workspace.worktree import Workspace

_LIST = "copied.json"


@dataclass(frozen=True)
class CopyReport:
    """Paths relative to the folder that the user named; each skipped one with the reason."""

    copied: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]


def copy_files(workspace: Workspace, patterns: Sequence[str]) -> CopyReport:
    """Copy what the paths and globs name. Repeating it copies again what the user's folder holds then.

    Files that git carries are skipped, and links that lead out of the user's folder. Raises `WorkspaceError` for a
    pattern that is absolute or climbs out.
    """
    for pattern in patterns:
        _check_pattern(pattern)
    if workspace.source is None:
        return CopyReport((), tuple((pattern, "the repository has no checkout") for pattern in patterns))
    copied: list[str] = []
    skipped: list[tuple[str, str]] = []
    with hold_lock(workspace.lock_path):
        tracked = _tracked(workspace)
        for name in _matches(workspace, patterns, skipped):
            reason = _refusal(workspace, name, tracked)
            if reason:
                skipped.append((name, reason))
            else:
                copied.append(name)
        # crash: listed before it is there, so no snapshot can ever hold a copied file.
        _add_to_list(workspace, copied)
        for name in copied:
            _copy(workspace.source / name, workspace.root / name)
    return CopyReport(tuple(copied), tuple(skipped))


def read_copied(workspace: Workspace) -> frozenset[str]:
    """Read the copied paths, relative to the worktree's top."""
    path = workspace.state_dir / _LIST
    return frozenset(json.loads(path.read_text())) if path.exists() else frozenset()


def _check_pattern(pattern: str) -> None:
    parts = PurePosixPath(pattern).parts
    if not parts or pattern.startswith("/") or ".." in parts or ".git" in parts:
        raise WorkspaceError(
            f"{pattern!r} cannot be copied: it is not a path inside the repository.",
            hint="Name a relative path or glob without '..'.",
            pattern=pattern,
        )


def _matches(workspace: Workspace, patterns: Sequence[str], skipped: list[tuple[str, str]]) -> Iterator[str]:
    source = workspace.source or workspace.root
    ours = own_folders(workspace.state_dir.parents[2], source)
    seen: set[Path] = set()
    for pattern in patterns:
        found = sorted(file for match in source.glob(pattern) for file in _files(match))
        if not found:
            skipped.append((pattern, "there is no such file"))
        for file in found:
            name = file.relative_to(source)
            if file not in seen and ".git" not in name.parts and not any(is_within(file, own) for own in ours):
                seen.add(file)
                yield name.as_posix()


def _files(match: Path) -> Iterable[Path]:
    if match.is_dir() and not match.is_symlink():
        return (file for file in match.rglob("*") if file.is_symlink() or file.is_file())
    return (match,)


def _tracked(workspace: Workspace) -> frozenset[str]:
    names = workspace.git.run("ls-tree", "-r", "-z", "--name-only", "--full-tree", workspace.base_commit).names
    return frozenset(names)


def _in_worktree(workspace: Workspace, name: str) -> str:
    return (workspace.root / name).relative_to(workspace.worktree).as_posix()


def _refusal(workspace: Workspace, name: str, tracked: frozenset[str]) -> str:
    source = (workspace.source or workspace.root).resolve()
    origin = (source / name).resolve()
    if not is_within(origin, source):
        return "it leads out of the repository"
    if not origin.is_file():
        return "it is not a file"
    if _in_worktree(workspace, name) in tracked:
        return "git carries it already"
    if not is_within((workspace.root / name).parent.resolve(), workspace.root):
        return "its folder in the workspace leads elsewhere"
    return ""


def _add_to_list(workspace: Workspace, names: list[str]) -> None:
    paths = read_copied(workspace) | {_in_worktree(workspace, name) for name in names}
    write_whole(workspace.state_dir / _LIST, json.dumps(sorted(paths)))


def _copy(origin: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, origin.read_bytes(), mode=origin.stat().st_mode & 0o777)
