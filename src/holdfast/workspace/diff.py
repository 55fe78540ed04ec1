"""The difference between two trees or commits of a repository: as text, as numbers, as paths.

`repo` is the repository's git directory (`Workspace.repo`); the worktree need not be there any more.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from holdfast.workspace.git import Git

# Settings of the user that change a diff's looks are overruled, and no program of the user's is run for it.
_PLAIN = ("--no-color", "--no-ext-diff", "--no-textconv", "--no-renames")
_PATCH = ("--binary", "--full-index", "--src-prefix=a/", "--dst-prefix=b/", "--unified=3")
_CUT = re.compile(r"^\[cut: (\d+) of \d+ characters are not shown\]$", re.MULTILINE)


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


@dataclass(frozen=True)
class PatchLook:
    """How a change is shown: a file that was moved as one, or as one that went and one that came, and how many lines
    around a changed one."""

    has_renames: bool = False
    context: int = 3


GIT_LOOK = PatchLook()


def diff(
    repo: Path,
    before: str,
    after: str,
    *,
    max_chars: int | None = None,
    without: Sequence[str] = (),
    look: PatchLook = GIT_LOOK,
) -> str:
    """Return the difference as `git apply` takes it, binary files too; cut with a note at `max_chars`.

    `without` names files that are left out: paths, folders or globs.
    """
    out = [path for path in changed_paths(repo, before, after) if is_named(without, path)] if without else []
    # That a name can be excluded at all must be asked for; that it is not read as a pattern too.
    head = ("--no-literal-pathspecs", "diff") if out else ("diff",)
    paths = ("--", ":/", *(f":(top,exclude,literal){path}" for path in out)) if out else ()
    options = (*_PATCH, f"--unified={look.context}", *(("--find-renames",) if look.has_renames else ()))
    raw = Git(git_dir=repo).run(*head, *_PLAIN, *options, before, after, *paths).stdout
    text = raw.decode(errors="replace")
    if max_chars is None or len(text) <= max_chars:
        return text
    return f"{text[:max_chars]}\n[cut: {len(text) - max_chars} of {len(text)} characters are not shown]\n"


def find_cut(patch: str) -> int:
    """Return how many characters were cut off a patch that `diff` made."""
    found = _CUT.search(patch, max(0, len(patch) - 200))
    return int(found.group(1)) if found else 0


def summarize_diff(repo: Path, before: str, after: str) -> DiffSummary:
    entries = Git(git_dir=repo).run("diff", "--numstat", "-z", *_PLAIN, before, after).names
    return DiffSummary(tuple(_file_change(entry) for entry in entries))


def changed_paths(repo: Path, before: str, after: str) -> tuple[str, ...]:
    return tuple(Git(git_dir=repo).run("diff-tree", "-r", "-z", "--name-only", "--no-renames", before, after).names)


def has_object(repo: Path, object_id: str) -> bool:
    """Tell whether a tree or commit is there; one that no ref reaches may have been collected as garbage."""
    return Git(git_dir=repo).find("rev-parse", "--verify", "--quiet", f"{object_id}^{{tree}}") is not None


def read_change_kinds(repo: Path, before: str, after: str) -> dict[str, str]:
    """Return what became of each path: `A` added, `D` deleted, else `M`."""
    words = Git(git_dir=repo).run("diff-tree", "-r", "-z", "--name-status", "--no-renames", before, after).names
    return {path: kind if kind in "AD" else "M" for kind, path in zip(words[::2], words[1::2], strict=True)}


def is_named(patterns: Sequence[str], path: str) -> bool:
    """Tell whether a path is one of `patterns`, lies in one of them, or is meant by one as a glob."""
    return any(path == name or path.startswith(f"{name.rstrip('/')}/") or fnmatchcase(path, name) for name in patterns)


def _file_change(entry: str) -> FileChange:
    added, removed, path = entry.split("\t", 2)
    return FileChange(path, None if added == "-" else int(added), None if removed == "-" else int(removed))
