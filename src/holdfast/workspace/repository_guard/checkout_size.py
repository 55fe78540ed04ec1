"""How much a commit comes to as files, counted before the first of them is written.

Nine objects of git can stand for ten million files, and a few kilobytes for a file of gigabytes. Written out they fill
the disk, and then nothing can be recorded any more, not even that the run is to end.
"""

import os
import shutil
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from holdfast.errors import WorkspaceError, WorkspaceTooLarge
from holdfast.workspace.git import Git

_CHUNK_BYTES = 1 << 16
_BLOCK_BYTES = 4096
_LONGEST_NAME = 255
_LONGEST_PATH = 3000


@dataclass(frozen=True)
class CheckoutLimits:
    """The most that is checked out, and what must be left free on the disk then."""

    max_files: int = 1_000_000
    max_bytes: int = 100 * 1024**3
    spare_bytes: int = 256 * 1024**2


LIMITS = CheckoutLimits()


def check_size(git: Git, commit: str, place: Path, limits: CheckoutLimits | None = None) -> None:
    """Raise `WorkspaceTooLarge` if the files of a commit are too many, too big, or too much for the disk of `place`."""
    limits = limits or LIMITS
    if git.git_dir is None:
        raise ValueError("the git directory has to be named")
    try:
        files, total = _count(git.git_dir, commit, limits)
    except WorkspaceTooLarge:
        raise
    except WorkspaceError as failed:
        raise WorkspaceError(
            f"Commit {commit[:12]} cannot be read in full: the repository lacks some of its objects.",
            hint="In a partial clone, fetch them first: git archive COMMIT > /dev/null; else look with git fsck.",
            commit=commit,
        ) from failed
    if files > limits.max_files or total > limits.max_bytes:
        raise _too_large(
            f"Commit {commit[:12]} holds more than {limits.max_files:,} files or {limits.max_bytes / 1024**3:.0f} GiB.",
            files=files,
            total_bytes=total,
        )
    free = shutil.disk_usage(_existing(place)).free
    if total + limits.spare_bytes > free:
        raise _too_large(
            f"Commit {commit[:12]} comes to {files:,} files and {total / 1024**2:.0f} MiB on the disk, and only "
            f"{free / 1024**2:.0f} MiB are free.",
            files=files,
            total_bytes=total,
        )


def _too_large(message: str, **facts: int) -> WorkspaceTooLarge:
    return WorkspaceTooLarge(message, hint="Start from another branch, or free some space.", **facts)


@lru_cache(maxsize=64)  # a commit never changes, and a run is looked at when it is asked for and when it starts
def _count(git_dir: Path, commit: str, limits: CheckoutLimits) -> tuple[int, int]:
    """Return the number of files and the bytes they take; counting ends where either is above its limit."""
    files = total = 0
    with Git(git_dir=git_dir).stream("ls-tree", "-r", "-l", "-z", "--full-tree", commit) as output:
        rest = b""
        while chunk := output.read(_CHUNK_BYTES):
            *entries, rest = (rest + chunk).split(b"\0")
            for entry in entries:
                files += 1
                total += _size_on_disk(entry)
            _check_name(rest)
            if files > limits.max_files or total > limits.max_bytes:
                break
    return files, total


def _size_on_disk(entry: bytes) -> int:
    facts, _, path = entry.partition(b"\t")
    _check_name(path)
    size = facts.rsplit(b" ", 1)[-1]
    if size == b"BAD":  # what git says of a file that is not there, without failing
        raise WorkspaceError(f"{os.fsdecode(path[:200])} is missing.")
    blocks = -(-int(size) // _BLOCK_BYTES) if size.isdigit() else 1
    return max(1, blocks) * _BLOCK_BYTES


def _check_name(path: bytes) -> None:
    if len(path) > _LONGEST_PATH or any(len(name) > _LONGEST_NAME for name in path.split(b"/")):
        raise WorkspaceTooLarge(
            f"The repository holds a path that no disk can have: {os.fsdecode(path[:60])}….",
            hint=f"A name has {_LONGEST_NAME} bytes at most.",
        )


def _existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.is_dir())
