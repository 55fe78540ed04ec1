"""What the workspace holds now, as a git tree; and a commit of it under a ref, per phase attempt.

A tree is built through an index of our own, kept beside the run's state so that unchanged files are not read again.
The worktree's own index, HEAD and branch stay as they are. What a tree leaves out is named, never dropped in silence.
"""

import os
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from holdfast.errors import WorkspaceError
from holdfast.workspace.copied_files import read_copied
from holdfast.workspace.files import hold_lock, read_text_if_there, stamp_file
from holdfast.workspace.git import HOLDFAST, Git, find_common_dir, identity, is_object_id, to_stdin
from holdfast.workspace.objects.commit_object import write_commit
from holdfast.workspace.objects.file_stamps import FileStamps, read_file_stamps
from holdfast.workspace.refs import replaced_ref, snapshot_ref
from holdfast.workspace.submodules import find_changed_submodules, has_gitlinks, has_submodules
from holdfast.workspace.tool_folders import ALWAYS_LEFT_OUT, read_tool_folders, to_patterns
from holdfast.workspace.worktree import BEGUN_INDEXES, Workspace


class LeftOutReason(StrEnum):
    """Why a path is not in a tree."""

    TOO_BIG = "too_big"
    UNREADABLE = "unreadable"
    NESTED_REPOSITORY = "nested_repository"
    SUBMODULE_CHANGES = "submodule_changes"


@dataclass(frozen=True)
class LeftOut:
    path: str
    reason: LeftOutReason
    size_bytes: int = 0


@dataclass(frozen=True)
class SnapshotRules:
    """What snapshots leave out beside git's own ignore files; `ignore` holds patterns as in `.gitignore`."""

    max_file_bytes: int | None = 20 * 1024**2
    ignore: tuple[str, ...] = ()


DEFAULT_RULES = SnapshotRules()
_UNUSABLE_INDEX = ("index file", "error building trees", "invalid object", "unable to read", "bad object")


@dataclass(frozen=True)
class Tree:
    tree_id: str
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True)
class Snapshot:
    ref: str
    commit: str
    tree_id: str
    left_out: tuple[LeftOut, ...] = ()


def write_tree(workspace: Workspace, rules: SnapshotRules = DEFAULT_RULES) -> Tree:
    """Write the tree of all tracked and untracked files as they are now. The same files give the same id anywhere."""
    with hold_lock(workspace.lock_path):
        return build_tree(workspace, rules)


def snapshot(
    workspace: Workspace,
    phase_key: str,
    attempt: int,
    *,
    at: datetime,
    message: str = "",
    rules: SnapshotRules = DEFAULT_RULES,
) -> Snapshot:
    """Keep the workspace as it is now under the attempt's ref. On return it is reachable.

    May happen twice: the same content keeps the commit that is there; other content replaces it, and the earlier one
    stays reachable under `@replaced`.
    """
    ref = snapshot_ref(workspace.run_id, phase_key, attempt)
    with hold_lock(workspace.lock_path):
        tree = build_tree(workspace, rules)
        git = workspace.git
        old = None if _is_new(workspace, ref) else git.find("rev-parse", "--verify", "--quiet", ref)
        if old and git.line("rev-parse", f"{old}^{{tree}}") == tree.tree_id:
            return Snapshot(ref, old, tree.tree_id, tree.left_out)
        commit = commit_tree(workspace, tree.tree_id, message or f"{phase_key}, attempt {attempt}", at=at)
        update = f"update {ref} {commit} {old or '0' * len(commit)}\n"
        keep = f"update {replaced_ref(workspace.run_id, old)} {old}\n" if old else ""
        # crash: before it the commit is not reachable and the caller's next try makes it again.
        git.run("update-ref", "--stdin", stdin=(keep + update).encode())
        return Snapshot(ref, commit, tree.tree_id, tree.left_out)


def _is_new(workspace: Workspace, ref: str) -> bool:
    """Tell whether a ref is not there, by the files that git has refs in; false where they do not say."""
    packed, folder = workspace.repo / "packed-refs", workspace.repo / "refs" / "holdfast"
    is_packed = packed.exists() and ref.encode() in packed.read_bytes()
    return folder.is_dir() and not is_packed and not os.path.lexists(workspace.repo / ref)


def commit_tree(workspace: Workspace, tree_id: str, message: str, *, at: datetime) -> str:
    """Commit the tree on top of the worktree's HEAD, so that commits made in the worktree stay reachable."""
    head = _read_head(workspace)
    if head is not None:
        return write_commit(workspace.repo, tree_id, parent=head, message=message, at=at)
    git = Git(git_dir=workspace.git_dir, env=identity(HOLDFAST, at))
    return git.line("commit-tree", tree_id, "-p", "HEAD", "-m", message)


def _read_head(workspace: Workspace) -> str | None:
    """Read the commit that is checked out from git's own files; `None` where they do not have it in so many words."""
    head = read_text_if_there(workspace.git_dir / "HEAD") or ""
    if head.startswith("ref: refs/heads/"):
        head = read_text_if_there(workspace.repo / head.removeprefix("ref: ").rstrip("\n")) or ""
    commit = head.rstrip("\n")
    return commit if is_object_id(commit) and set(commit) != {"0"} else None


def index_path(workspace: Workspace) -> Path:
    return workspace.state_dir / "index"


def index_git(workspace: Workspace, index: Path | None = None) -> Git:
    return Git(git_dir=workspace.git_dir, work_tree=workspace.worktree, index=index or index_path(workspace))


def build_tree(workspace: Workspace, rules: SnapshotRules, *, index: Path | None = None) -> Tree:
    """Write the tree for a caller that holds the workspace's lock; `index` replaces the workspace's own index."""
    if not workspace.worktree.is_dir():
        raise WorkspaceError(
            f"The worktree {workspace.worktree} is gone.",
            hint="Resume the run: it is made again from what was recorded.",
            path=str(workspace.worktree),
        )
    changes = None if index is not None else _find_changes(workspace, rules)
    if changes is not None and changes.known is not None:
        _remember(workspace, rules, changes.stamps, changes.known)
        return changes.known
    index_file = index or index_path(workspace)
    index_file.with_name(f"{index_file.name}.lock").unlink(missing_ok=True)  # left by a killed git: we hold the lock
    try:
        tree = _build(workspace, index, rules, changed=None if changes is None else changes.paths)
        if changes is not None:
            _remember(workspace, rules, changes.stamps, tree)
        return tree
    except WorkspaceError as failed:
        # A torn index is only a cache of what git can read again. So is one whose files a `git gc --prune=now` of the
        # user's has thrown away: no ref reaches what is staged there.
        if not any(words in str(failed.facts.get("stderr", "")) for words in _UNUSABLE_INDEX):
            raise
        index_file.unlink(missing_ok=True)
        return _build(workspace, index, rules)


@dataclass(frozen=True)
class _Built:
    """A tree that this process built, and what it was built from."""

    facts: tuple[object, ...]
    stamps: FileStamps
    tree: Tree


@dataclass(frozen=True)
class _Touched:
    """The files as they are now, and since the last tree of this process what has changed; `None`: git has to look."""

    stamps: FileStamps
    known: Tree | None = None
    paths: frozenset[str] | None = None


_BUILT: dict[Path, _Built] = {}
_MOST_BUILT = 30
_PLAIN_VERSION = b"\0\0\0\2"


def _find_changes(workspace: Workspace, rules: SnapshotRules) -> _Touched | None:
    """Find what has changed since this process built the last tree; `None` where the files cannot say that."""
    index = index_path(workspace).read_bytes() if index_path(workspace).exists() else b""
    if has_submodules(workspace.state_dir) or index[4:8] != _PLAIN_VERSION:
        return None  # submodules have state of their own, and other versions do not have every path in full
    unknown = {name.rstrip("/") for name in ALWAYS_LEFT_OUT if name.encode() not in index}
    without = unknown | set(read_tool_folders(workspace))
    stamps = read_file_stamps(workspace.worktree, workspace.state_dir / "clock", without=without)
    if stamps is None:
        return None
    built = _BUILT.get(workspace.worktree)
    if built is None or built.facts != _read_facts(workspace, rules):
        return _Touched(stamps)
    changed = built.stamps.find_changed(stamps)
    if not changed and _has_loose(workspace, built.tree.tree_id):
        return _Touched(stamps, built.tree, frozenset())
    has_rules = bool(rules.ignore) or stamps.has_ignore_files or built.stamps.has_ignore_files
    if not changed or has_rules or len(unknown) < len(ALWAYS_LEFT_OUT) or _has_patterns(workspace.repo):
        return _Touched(stamps)
    # What no tree could hold is looked at again, so that it is named again.
    return _Touched(stamps, None, frozenset(changed | {item.path for item in built.tree.left_out}))


def _remember(workspace: Workspace, rules: SnapshotRules, stamps: FileStamps, tree: Tree) -> None:
    if len(_BUILT) >= _MOST_BUILT:
        _BUILT.clear()
    _BUILT[workspace.worktree] = _Built(_read_facts(workspace, rules), stamps, tree)


def _read_facts(workspace: Workspace, rules: SnapshotRules) -> tuple[object, ...]:
    """Return what a tree depends on beside the files of the worktree."""
    info = workspace.repo / "info"
    files = (index_path(workspace), info / "exclude", info / "attributes")
    folders = tuple(sorted(read_tool_folders(workspace)))
    return rules, read_copied(workspace), folders, tuple(stamp_file(file) if file.exists() else None for file in files)


def _has_patterns(repo: Path) -> bool:
    """Tell whether the repository leaves out files of its own, beside its ignore files."""
    lines = (read_text_if_there(repo / "info" / "exclude") or "").splitlines()
    return any(line.strip() and not line.startswith("#") for line in lines)


def _has_loose(workspace: Workspace, tree_id: str) -> bool:
    return (workspace.repo / "objects" / tree_id[:2] / tree_id[2:]).exists()


def list_ignored(workspace: Workspace) -> tuple[str, ...]:
    """List what git's ignore files leave out of a tree; a folder that is left out whole ends with '/'."""
    listing = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
    return tuple(index_git(workspace).run(*listing, *(f"--exclude={pattern}" for pattern in ALWAYS_LEFT_OUT)).names)


def open_index(workspace: Workspace, index: Path | None = None) -> Git:
    """Return git with the index that trees are built through; a new one holds the base."""
    git = index_git(workspace, index)
    if git.index is not None and not git.index.exists():
        git.run("read-tree", workspace.base_commit)
    return git


def _build(
    workspace: Workspace, index: Path | None, rules: SnapshotRules, *, changed: frozenset[str] | None = None
) -> Tree:
    git = open_index(workspace, index)
    patterns = (*rules.ignore, *ALWAYS_LEFT_OUT, *to_patterns(read_tool_folders(workspace)))
    ignore = [f"--exclude={pattern}" for pattern in patterns]
    candidates = _list_candidates(git, ignore) if changed is None else changed
    submodules = find_changed_submodules(workspace.worktree, workspace.state_dir)
    left_out = [LeftOut(path, LeftOutReason.SUBMODULE_CHANGES) for path in submodules]
    paths = []
    for path in sorted(candidates - read_copied(workspace) - set(submodules)):
        refused = _refuse(workspace.worktree, path, rules)
        if refused:
            left_out.append(refused)
        else:
            paths.append(path)
    if paths:
        stage(git, paths)
    if any(Path(path).name == ".gitignore" for path in paths):
        _drop_ignored(workspace, git, ignore)
    return Tree(_write_index(git, is_changed=bool(paths)), tuple(left_out))


def _list_candidates(git: Git, ignore: list[str]) -> set[str]:
    """List what is changed, gone or not known to the index."""
    assert git.index is not None
    untracked = ("ls-files", "-z", "--others", "--exclude-standard", *ignore)
    if git.index.stat().st_size < _SMALL_INDEX_BYTES and not has_gitlinks(git.index):
        return set(git.run(*untracked, "--modified").names)
    # Two commands, because `ls-files --modified` takes four times as long as `diff-files` for the same answer, and
    # cannot be told to leave submodules alone.
    changed = git.run("diff-files", "-z", "--name-only", "--no-renames", "--ignore-submodules=all").names
    return {*changed, *git.run(*untracked).names}


_SMALL_INDEX_BYTES = 256 * 1024
_WRITTEN: dict[Path, tuple[tuple[int, int, int], str]] = {}
_MOST_REMEMBERED = 1000


def _write_index(git: Git, *, is_changed: bool) -> str:
    """Write the tree of the index, unless this process wrote it already and it is still there."""
    assert git.index is not None
    assert git.git_dir is not None
    known = _WRITTEN.get(git.index)
    if not is_changed and known is not None and known[0] == stamp_file(git.index):
        objects = (find_common_dir(git.git_dir) or git.git_dir) / "objects"
        if (objects / known[1][:2] / known[1][2:]).exists():
            return known[1]
    commit, *begun = BEGUN_INDEXES.get(git.index, ("",))
    if not is_changed and tuple(begun) == stamp_file(git.index):
        tree = _find_tree_of(find_common_dir(git.git_dir) or git.git_dir, str(commit))
    else:
        tree = git.line("write-tree")
    if len(_WRITTEN) > _MOST_REMEMBERED:
        _WRITTEN.clear()
    _WRITTEN[git.index] = (stamp_file(git.index), tree)
    return tree


@lru_cache(maxsize=64)  # a commit never changes, and many runs start from the same one
def _find_tree_of(git_dir: Path, commit: str) -> str:
    return Git(git_dir=git_dir).line("rev-parse", "--verify", f"{commit}^{{tree}}")


def _drop_ignored(workspace: Workspace, git: Git, ignore: list[str]) -> None:
    """Take out what became ignored after it was staged, so that a tree depends on the files and not on their past."""
    ignored = set(git.run("ls-files", "-z", "--cached", "--ignored", "--exclude-standard", *ignore).names)
    if ignored:
        ignored -= set(git.run("ls-tree", "-r", "-z", "--name-only", "--full-tree", workspace.base_commit).names)
    git.run("update-index", "--force-remove", "-z", "--stdin", stdin=to_stdin(sorted(ignored)))


def stage(git: Git, paths: list[str]) -> None:
    """Put these paths into the index as they are in the worktree; one that is gone is taken out."""
    top = git.work_tree or Path()
    gone = [path for path in paths if not _is_there(top, path)]
    if gone:
        git.run("update-index", "--force-remove", "-z", "--stdin", stdin=to_stdin(gone))
    there = sorted(set(paths) - set(gone))
    if there:
        git.run("update-index", "--add", "--remove", "--replace", "-z", "--stdin", stdin=to_stdin(there))


def _is_there(top: Path, path: str) -> bool:
    """Tell whether the path leads to something without passing through a link, beyond which git has no files."""
    is_beyond_link = any((top / parent).is_symlink() for parent in Path(path).parents)
    return not is_beyond_link and os.path.lexists(top / path)


def _refuse(worktree: Path, path: str, rules: SnapshotRules) -> LeftOut | None:
    if path.endswith("/"):
        return LeftOut(path.rstrip("/"), LeftOutReason.NESTED_REPOSITORY)
    file = worktree / path
    if file.is_symlink() or not file.is_file():
        return None
    size = file.lstat().st_size
    if rules.max_file_bytes is not None and size > rules.max_file_bytes:
        return LeftOut(path, LeftOutReason.TOO_BIG, size)
    if not os.access(file, os.R_OK):
        return LeftOut(path, LeftOutReason.UNREADABLE, size)
    return None
