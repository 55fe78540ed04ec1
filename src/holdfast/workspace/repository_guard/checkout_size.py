"""How much a commit comes to as files, counted before the first of them is written.

Nine objects of git can stand for ten million files, and a few kilobytes for a file of gigabytes. Written out they fill
the disk, and then nothing can be recorded any more, not even that the run is to end.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, NamedTuple

from holdfast.errors import WorkspaceError, WorkspaceTooLarge
from holdfast.workspace.git import Git

_OBJECTS_AT_ONCE = 500  # requests for these fit into a pipe
_BLOCK_BYTES = 4096
_LONGEST_NAME = 255
_LONGEST_PATH = 3000
_LONGEST_ENTRY = _LONGEST_NAME + 64  # with its mode and its id
_HINT = "Start from another branch, or free some space."

_Conversation = tuple[IO[bytes], IO[bytes]]


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
    return WorkspaceTooLarge(message, hint=_HINT, **facts)


@lru_cache(maxsize=64)  # a commit never changes, and a run is looked at when it is asked for and when it starts
def _count(git_dir: Path, commit: str, limits: CheckoutLimits) -> tuple[int, int]:
    """Return the number of files of a commit and the bytes they take.

    Each folder is read once, however often it stands in the commit. Reading ends as soon as there are too many.
    """
    with Git(git_dir=git_dir).converse("cat-file", "--batch-command", "--buffer") as git:
        folders, is_whole = _read_folders(git, f"{commit}^{{tree}}", limits.max_files)
        if not is_whole:
            return limits.max_files + 1, 0
        sizes = _read_sizes(git, {blob for folder in folders.values() for blob in folder.files})
    root = next(iter(folders))
    totals: dict[str, _Total] = {}
    pending = [root]
    while pending:
        folder = folders[pending[-1]]
        if unknown := [tree for tree, _length in folder.folders if tree not in totals]:
            pending += unknown
        else:
            totals[pending.pop()] = _sum_up(folder, totals, sizes)
    whole = totals[root]
    if whole.longest_path > _LONGEST_PATH:
        raise _impossible_path(f"one of {whole.longest_path:,} bytes")
    return whole.files, whole.size


@dataclass(frozen=True)
class _Folder:
    files: list[str | None]
    """The ids of the files in it; `None` for a submodule, which stands for a folder of its own."""
    folders: list[tuple[str, int]]
    """The ids of the folders in it, and how long the name of each is."""
    longest_name: int


class _Total(NamedTuple):
    files: int
    size: int
    longest_path: int


def _sum_up(folder: _Folder, totals: Mapping[str, _Total], sizes: Mapping[str | None, int]) -> _Total:
    below = [(totals[tree], length) for tree, length in folder.folders]
    return _Total(
        len(folder.files) + sum(total.files for total, _length in below),
        sum(sizes[blob] for blob in folder.files) + sum(total.size for total, _length in below),
        max([folder.longest_name, *(length + 1 + total.longest_path for total, length in below)]),
    )


def _read_folders(git: _Conversation, root: str, max_files: int) -> tuple[dict[str, _Folder], bool]:
    """Read each folder below a root once, the root first, and tell whether that was all of them.

    It is not if the folders, or the files that they hold, are more than `max_files`: then nothing more is read. Raises
    `WorkspaceTooLarge` as soon as folders lie too deep in each other for any disk.
    """
    found: dict[str, _Folder] = {}
    level, known, files, depth = [root], {root}, 0, 0
    while level:
        depth += 1
        if depth > _LONGEST_PATH // 2:  # a name and a slash for each
            raise _impossible_path(f"one of more than {depth:,} folders")
        below: list[str] = []
        for start in range(0, len(level), _OBJECTS_AT_ONCE):
            for tree, size, output in _request(git, "contents", level[start : start + _OBJECTS_AT_ONCE], "tree"):
                if size > max_files * _LONGEST_ENTRY:
                    return found, False
                found[tree] = folder = _parse_folder(output.read(size + 1)[:-1], len(tree) // 2)
                files += len(folder.files)
                fresh = {name for name, _length in folder.folders} - known
                known |= fresh
                below += fresh
                if files > max_files or len(known) > max_files:
                    return found, False
        level = below
    return found, True


def _request(git: _Conversation, command: str, names: list[str], kind: str) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Ask git for objects and yield the id and the size of each; its content, if it was asked for, is to be read next.

    Raises `WorkspaceError` if one is not there.
    """
    requests, output = git
    try:
        requests.write("".join(f"{command} {name}\n" for name in names).encode() + b"flush\n")
        requests.flush()
    except BrokenPipeError as over:
        raise WorkspaceError("git ended before it was asked.") from over
    for name in names:
        facts = output.readline().decode().split()
        if len(facts) != 3 or facts[1] != kind:
            raise WorkspaceError(f"{name} is missing.")
        yield facts[0], int(facts[2]), output


def _parse_folder(content: bytes, id_bytes: int) -> _Folder:
    """Parse a tree as git stores it: for each entry a mode, a name and an id."""
    files: list[str | None] = []
    folders: list[tuple[str, int]] = []
    position = longest_name = 0
    while position < len(content):
        end = content.index(b"\0", position)
        mode, _, name = content[position:end].partition(b" ")
        position = end + 1 + id_bytes
        object_id = content[end + 1 : position].hex()
        if len(name) > _LONGEST_NAME:
            raise _impossible_path(f"{os.fsdecode(name[:60])}…")
        longest_name = max(longest_name, len(name))
        if mode == b"40000":
            folders.append((object_id, len(name)))
        else:
            files.append(None if mode == b"160000" else object_id)
    return _Folder(files, folders, longest_name)


def _read_sizes(git: _Conversation, blobs: set[str | None]) -> dict[str | None, int]:
    """Read how much room each file takes on a disk. Raises `WorkspaceError` if one is not there."""
    names = [blob for blob in blobs if blob is not None]
    sizes: dict[str | None, int] = {None: _BLOCK_BYTES}
    for start in range(0, len(names), _OBJECTS_AT_ONCE):
        for blob, size, _output in _request(git, "info", names[start : start + _OBJECTS_AT_ONCE], "blob"):
            sizes[blob] = max(1, -(-size // _BLOCK_BYTES)) * _BLOCK_BYTES
    return sizes


def _impossible_path(which: str) -> WorkspaceTooLarge:
    return WorkspaceTooLarge(
        f"The repository holds a path that no disk can have: {which}.",
        hint=f"A name has {_LONGEST_NAME} bytes at most, and a path {_LONGEST_PATH:,}.",
    )


def _existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.is_dir())
