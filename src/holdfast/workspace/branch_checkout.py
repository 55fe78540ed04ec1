"""Moves a branch together with the checkout that has it; after a kill in the middle, doing it again finishes it.

Rule: files first, then the index, then the branch. Files are moved with an index of our own, so that a killed git
leaves no lock behind in the user's repository. What already holds the result is recognised and counts as moved.
"""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from holdfast.errors import WorkspaceConflict
from holdfast.workspace.files import find_occupants
from holdfast.workspace.git import Git
from holdfast.workspace.repository import git_dir_of, status_paths


def move_branch(
    git: Git, branch: str, tip: str | None, commit: str, *, paths: Sequence[str], state: Path
) -> Path | None:
    """Move `branch` from `tip` to `commit`, and the files of the checkout that has it, if one does; returns that.

    `paths` is what differs between the two, `state` a folder of ours. Raises `WorkspaceConflict`, and changes nothing,
    if the user has changes in one of them. May be repeated after a kill.
    """
    checkout = find_checkout(git, branch)
    if checkout is not None:
        _move_files(_Checkout(checkout, tip or git.line("mktree"), commit, state), paths)
    git.run("update-ref", "-m", "holdfast merge", f"refs/heads/{branch}", commit, tip or "0" * len(commit))
    return checkout


def check_files(
    git: Git, branch: str, tip: str | None, commit: str, *, paths: Sequence[str], state: Path
) -> Path | None:
    """Find the checkout that `move_branch` would move. Raises what it would; nothing is changed."""
    checkout = find_checkout(git, branch)
    if checkout is not None:
        place = _Checkout(checkout, tip or git.line("mktree"), commit, state)
        _find_movable(place, paths)
        drop_index(place.index)
    return checkout


def find_checkout(git: Git, branch: str) -> Path | None:
    checkout = None
    for fact in git.run("worktree", "list", "--porcelain", "-z").names:
        if fact.startswith("worktree "):
            checkout = Path(fact.removeprefix("worktree "))
        if fact == f"branch refs/heads/{branch}" and checkout is not None and _belongs(checkout, git):
            return checkout
    return None


def _belongs(checkout: Path, git: Git) -> bool:
    """Tell whether a folder that the repository names as a checkout of its own says the same of itself."""
    found = Git(folder=checkout, is_exact=False).find("rev-parse", "--path-format=absolute", "--git-common-dir")
    return found is not None and Path(found).resolve() == git_dir_of(git).resolve()


class _Checkout:
    """A folder of the user's between two trees."""

    def __init__(self, folder: Path, before: str, after: str, state: Path) -> None:
        self.folder, self.before, self.after = folder, before, after
        self.git = Git(folder=folder, is_exact=False)
        self.index = state / "index.checkout"
        self.scratch = Git(folder=folder, index=self.index, is_exact=False)

    def names(self, *command: str, git: Git | None = None) -> set[str]:
        return set((git or self.git).run(*command).names)


def _find_movable(place: _Checkout, paths: Sequence[str]) -> set[str]:
    """Return what holds the result already. Raises `WorkspaceConflict` if the user has changes in other files of it."""
    dirty = _find_dirty(place, paths)
    moved = _find_moved(place, dirty) if dirty else set()
    if blocked := tuple(sorted(dirty - moved)):
        raise WorkspaceConflict(
            f"The checkout {place.folder} has changes of its own in {few(blocked)}; nothing was changed.",
            paths=blocked,
            hint="Commit or stash them and merge again, or make a branch of the result.",
        )
    return moved


def _move_files(place: _Checkout, paths: Sequence[str]) -> None:
    moved = _find_movable(place, paths)
    _take_index(place)
    _note_moved(place, moved)
    # crash: files that have moved show up as changed; the next merge finds that they hold the result.
    place.scratch.run("read-tree", "-m", "-u", place.before, place.after)
    # crash: all files have moved; the next merge goes on with the index.
    place.git.run("read-tree", "-i", "-m", place.before, place.after)
    # crash: the result shows up as staged; the next merge moves the branch.
    place.git.run("update-index", "-q", "--refresh", ok=(0, 1))
    place.index.unlink(missing_ok=True)


def _find_dirty(place: _Checkout, paths: Sequence[str]) -> set[str]:
    """Find files of the user's that the result would overwrite; git itself overwrites ignored ones without asking."""
    carried = place.names("ls-tree", "-r", "-z", "--name-only", "--full-tree", place.before)
    changed = set(paths) & set(status_paths(place.git, has_untracked=False))
    occupied = {file for path in set(paths) - carried for file in find_occupants(place.folder, path)}
    return changed | (occupied - carried)


def _find_moved(place: _Checkout, paths: Iterable[str]) -> set[str]:
    """Find the paths that hold the result already: a merge was killed after it had moved them."""
    drop_index(place.index)
    place.scratch.run("read-tree", place.after)
    result = place.names("ls-files", "-z", git=place.scratch)
    place.scratch.run("update-index", "-q", "--refresh", ok=(0, 1))
    differing = place.names("diff-files", "-z", "--name-only", git=place.scratch)
    # A third content that the user has staged is theirs, whatever lies in the file.
    cached = ("diff-index", "--cached", "-z", "--name-only", "--no-renames")
    staged = place.names(*cached, place.before) & place.names(*cached, place.after)
    return {path for path in paths if path not in staged and _is_there(place.folder / path, path, result, differing)}


def _is_there(file: Path, path: str, result: set[str], differing: set[str]) -> bool:
    return path not in differing if path in result else not (file.exists() or file.is_symlink())


def _take_index(place: _Checkout) -> None:
    drop_index(place.index)
    own = place.folder / place.git.line("rev-parse", "--git-path", "index")
    if own.exists():
        shutil.copyfile(own, place.index)
    place.scratch.run("update-index", "-q", "--refresh", ok=(0, 1))


def _note_moved(place: _Checkout, moved: set[str]) -> None:
    """Tell our index that these files are what they should become, so that git leaves them as they are."""
    if not moved:
        return
    entries = place.git.run("ls-tree", "-r", "-z", "--full-tree", place.after).names
    by_path = {entry.split("\t", 1)[1]: entry for entry in entries}
    zeros = "0" * len(place.after)
    lines = "".join(f"{by_path.get(path) or f'0 {zeros}{chr(9)}{path}'}\0" for path in sorted(moved))
    place.scratch.run("update-index", "-z", "--index-info", stdin=lines.encode("utf-8", "surrogateescape"))
    place.scratch.run("update-index", "-q", "--refresh", ok=(0, 1))


def drop_index(index: Path) -> None:
    """Remove an index of ours, and the lock that a killed git may have left beside it; nobody else uses either."""
    index.unlink(missing_ok=True)
    index.with_name(f"{index.name}.lock").unlink(missing_ok=True)


def few(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
    return ", ".join(paths[:5]) + more
