"""A folder without git gets a private repository, made from a copy, so that worktrees and snapshots work alike.

The folder itself is only read. The repository lies in the data directory and outlives the worktree: what a run made
stays reachable after the worktree is gone.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from holdfast.errors import WorkspaceTooLarge
from holdfast.workspace.files import is_within, own_folders, remove_folder, sync_folder
from holdfast.workspace.git import HOLDFAST, Git, identity, to_stdin
from holdfast.workspace.repository import Repository

# A database, SQLite's files beside it and our folder of locks: copying them while it is in use gives a torn one.
_DATABASE = re.compile(r".*\.(db|sqlite|sqlite3)(-wal|-shm|-journal|-locks)?")


@dataclass(frozen=True)
class CopyLimits:
    """How much of a plain folder is copied before the user is told to make it a repository."""

    max_bytes: int = 1024**3
    max_files: int = 100_000


COPY_LIMITS = CopyLimits()


def ensure_private_repository(
    repo_dir: Path, folder: Path, *, base_branch: str, data_dir: Path, limits: CopyLimits
) -> Repository:
    """Return the run's private repository, made on the first call from what lies in `folder` then.

    Raises `WorkspaceTooLarge` before anything is copied.
    """
    if not repo_dir.exists():
        _make(repo_dir, folder, base_branch=base_branch, data_dir=data_dir, limits=limits)
    return Repository(repo_dir)


def _make(repo_dir: Path, folder: Path, *, base_branch: str, data_dir: Path, limits: CopyLimits) -> None:
    part = repo_dir.with_name(f"{repo_dir.name}.part")
    if part.exists():
        remove_folder(part)
    part.parent.mkdir(parents=True, exist_ok=True)
    Git().run("init", "--quiet", "--bare", "--object-format=sha1", "--template=", "--", str(part))
    names = list_files(part, folder, data_dir=data_dir)
    _check_size(folder, names, limits)
    git = Git(git_dir=part, work_tree=folder, env=identity(HOLDFAST, datetime.now(UTC)))
    git.run("update-index", "--add", "-z", "--stdin", stdin=to_stdin(names))
    commit = git.line("commit-tree", git.line("write-tree"), "-m", f"Copy of the folder {folder.name}")
    git.run("update-ref", f"refs/heads/{base_branch}", commit)
    git.run("symbolic-ref", "HEAD", f"refs/heads/{base_branch}")
    (part / "index").unlink()
    sync_folder(part)
    part.rename(repo_dir)  # crash: before it only a half-made copy that the next call makes anew, after it a whole one
    sync_folder(repo_dir.parent)


def list_files(git_dir: Path, folder: Path, *, data_dir: Path) -> list[str]:
    """List the files to copy, relative to `folder`: what its `.gitignore` files leave, without our data and databases.

    Repositories inside the folder are copied as plain files.
    """
    ours = own_folders(data_dir, folder)
    pending = [""]
    names: list[str] = []
    while pending:
        below = pending.pop()
        git = Git(git_dir=git_dir, work_tree=folder / below, folder=folder / below)
        for name in git.run("ls-files", "-z", "--others", "--exclude-standard").names:
            path = f"{below}{name}"
            if any(is_within(folder / path, own) for own in ours) or _is_database(path):
                continue
            (pending if name.endswith("/") else names).append(path)
    return sorted(names)


def _is_database(path: str) -> bool:
    name, folder = Path(path).name, Path(path).parent.name
    return _DATABASE.fullmatch(name) is not None or (
        folder.endswith("-locks") and _DATABASE.fullmatch(folder) is not None
    )


def _check_size(folder: Path, names: list[str], limits: CopyLimits) -> None:
    sizes = {name: (folder / name).lstat().st_size for name in names}
    total = sum(sizes.values())
    if total <= limits.max_bytes and len(names) <= limits.max_files:
        return
    biggest = sorted(sizes, key=lambda name: -sizes[name])[:3]
    raise WorkspaceTooLarge(
        f"The folder {folder} holds {len(names)} files of {total / 1024**2:.0f} MiB, more than the "
        f"{limits.max_files} files or {limits.max_bytes / 1024**2:.0f} MiB that are copied; "
        f"the biggest are {', '.join(biggest)}.",
        path=str(folder),
        total_bytes=total,
        files=len(names),
    )
