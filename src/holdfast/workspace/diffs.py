"""The difference between two trees or commits of a repository: as text, as numbers, as paths.

`repo` is the repository's git directory (`Workspace.repo`); the worktree need not be there any more.
"""

from dataclasses import dataclass
from pathlib import Path

from holdfast.workspace.git import Git

# Settings of the user that change a diff's looks are overruled, and no program of the user's is run for it.
_PLAIN = ("--no-color", "--no-ext-diff", "--no-textconv", "--no-renames")
_PATCH = ("--binary", "--full-index", "--src-prefix=a/", "--dst-prefix=b/", "--unified=3")


@dataclass(frozen=True)
class FileChange:
    """One changed file; lines are `None` for a binary one."""

    path: str
    added: int | None
    removed: int | None


@dataclass(frozen=True)
class DiffSummary:
    files: tuple[FileChange, ...]

    @property
    def added(self) -> int:
        return sum(file.added or 0 for file in self.files)

    @property
    def removed(self) -> int:
        return sum(file.removed or 0 for file in self.files)


def diff(repo: Path, before: str, after: str, *, max_chars: int | None = None) -> str:
    """The difference as `git apply` takes it, binary files too; cut with a note if it is longer than asked for."""
    raw = Git(git_dir=repo).run("diff", *_PLAIN, *_PATCH, before, after).stdout
    text = raw.decode(errors="replace")
    if max_chars is None or len(text) <= max_chars:
        return text
    return f"{text[:max_chars]}\n[cut: {len(text) - max_chars} of {len(text)} characters are not shown]\n"


def summarize_diff(repo: Path, before: str, after: str) -> DiffSummary:
    entries = Git(git_dir=repo).run("diff", "--numstat", "-z", *_PLAIN, before, after).names
    return DiffSummary(tuple(_file_change(entry) for entry in entries))


def changed_paths(repo: Path, before: str, after: str) -> tuple[str, ...]:
    return tuple(Git(git_dir=repo).run("diff-tree", "-r", "-z", "--name-only", "--no-renames", before, after).names)


def _file_change(entry: str) -> FileChange:
    added, removed, path = entry.split("\t", 2)
    return FileChange(path, None if added == "-" else int(added), None if removed == "-" else int(removed))
