"""Brings a run's result back to a folder without git, which the run had copied.

A file is written only if it still is what the run started from. All files are looked at before the first is written.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import RepositoryMissing, WorkspaceConflict
from holdfast.workspace.diff import changed_paths
from holdfast.workspace.files import find_occupants, hold_lock, write_whole
from holdfast.workspace.git import Git
from holdfast.workspace.result import leave_out
from holdfast.workspace.worktree import Workspace


@dataclass(frozen=True)
class Delivered:
    folder: Path
    paths: tuple[str, ...]


@dataclass(frozen=True)
class _TreeEntry:
    """A file as git knows it: mode and content; a missing file has neither."""

    mode: str = ""
    blob: str = ""


def deliver_result(
    workspace: Workspace, tree: str, *, without: Sequence[str] = (), is_dry_run: bool = False
) -> Delivered:
    """Write what the run changed into the folder it was copied from, unless it is a dry run. May be repeated after a
    kill.

    Raises `WorkspaceConflict`, and writes nothing, if one of those files was changed meanwhile.
    """
    folder = workspace.source
    if folder is None or not folder.is_dir():
        raise RepositoryMissing(f"The folder {folder} that the run was started with is gone.")
    with hold_lock(workspace.lock_path):
        git = Git(git_dir=workspace.repo)
        base, result = f"{workspace.base_commit}^{{tree}}", leave_out(workspace, tree, without)
        paths = changed_paths(workspace.repo, base, result)
        old, new = _read_entries(git, base), _read_entries(git, result)
        now = {path: _read_entry(folder, path) for path in paths}
        changed = [
            path for path in paths if now[path] not in (old.get(path, _TreeEntry()), new.get(path, _TreeEntry()))
        ]
        gone = {path for path in paths if path not in new}
        blocked = {file for path in paths for file in find_occupants(folder, path) if file not in {path, *gone}}
        conflicts = tuple(sorted({*changed, *blocked}))
        if conflicts:
            raise WorkspaceConflict(
                f"{folder} was changed since the run started, in {', '.join(conflicts[:5])}; nothing was changed.",
                paths=conflicts,
                hint="Move your version away, or take the result from the run's branch.",
            )
        if is_dry_run:
            return Delivered(folder, paths)
        for path in sorted(gone):
            _remove(folder, path)
        for path in (path for path in paths if path in new):
            _write(git, folder / path, new[path])
        return Delivered(folder, paths)


def _read_entries(git: Git, tree: str) -> dict[str, _TreeEntry]:
    entries = (entry.split("\t", 1) for entry in git.run("ls-tree", "-r", "-z", "--full-tree", tree).names)
    return {path: _TreeEntry(facts.split()[0], facts.split()[2]) for facts, path in entries}


def _read_entry(folder: Path, path: str) -> _TreeEntry:
    file = folder / path
    if file.is_symlink():
        return _TreeEntry("120000", _blob(os.fsencode(file.readlink())))
    if not file.is_file():
        return _TreeEntry()
    mode = "100755" if file.stat().st_mode & 0o100 else "100644"
    return _TreeEntry(mode, _blob(file.read_bytes()))


def _blob(content: bytes) -> str:
    # Git's own name for this content, not a protection; private repositories are made with this format.
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _remove(folder: Path, path: str) -> None:
    (folder / path).unlink(missing_ok=True)
    for parent in Path(path).parents[:-1]:
        if (folder / parent).is_dir() and not any((folder / parent).iterdir()):
            (folder / parent).rmdir()


def _write(git: Git, file: Path, entry: _TreeEntry) -> None:
    content = git.run("cat-file", "blob", entry.blob).stdout
    file.parent.mkdir(parents=True, exist_ok=True)
    if entry.mode == "120000":
        file.unlink(missing_ok=True)
        file.symlink_to(os.fsdecode(content))
        return
    if file.is_symlink():
        file.unlink()
    write_whole(file, content, mode=0o755 if entry.mode == "100755" else 0o644)
