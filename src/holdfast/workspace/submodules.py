"""Submodules of a run's worktree, filled from the user's own copies without a network.

Their git directories lie beside the run's state and are always named explicitly: one inside the worktree could be
rewritten by an agent into settings that run commands. Work inside a submodule is not carried by snapshots; it is named.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from holdfast.errors import WorkspaceError
from holdfast.workspace.files import is_within, remove_folder, write_whole
from holdfast.workspace.git import Git
from holdfast.workspace.repository import git_dir_of
from holdfast.workspace.repository_guard.checkout_size import check_size

_LIST = "submodules.json"


def fill_submodules(git: Git, *, worktree: Path, checkout: Path | None, state_dir: Path) -> tuple[str, ...]:
    """Check out each submodule at the commit that HEAD names; returns the paths of those that stay empty."""
    gitlinks = _gitlinks(git) if git.git_dir is None or has_gitlinks(git.git_dir / "index") else {}
    if not gitlinks:
        return ()
    allowed = (git_dir_of(git), *((checkout,) if checkout else ()))
    filled = {
        path: commit
        for path, commit in gitlinks.items()
        if checkout is not None and _fill(path, commit, worktree, _find_source(checkout / path, allowed), state_dir)
    }
    write_whole(state_dir / _LIST, json.dumps(filled))
    return tuple(path for path in gitlinks if path not in filled)


def has_gitlinks(index: Path) -> bool:
    """Tell whether an index file may name a submodule, by the bytes that every version of it has for that mode."""
    return not index.exists() or b"\x00\x00\xe0\x00" in index.read_bytes()


def has_submodules(state_dir: Path) -> bool:
    """Tell whether a worktree was filled with submodules."""
    return (state_dir / _LIST).exists()


def find_changed_submodules(worktree: Path, state_dir: Path) -> tuple[str, ...]:
    """Find submodules with changes: a tree of the run names their commit only, and would lose the work."""
    if not has_submodules(state_dir):
        return ()
    filled: dict[str, str] = json.loads((state_dir / _LIST).read_text())
    return tuple(path for path, commit in filled.items() if _is_changed(path, commit, worktree, state_dir))


def _is_changed(path: str, commit: str, worktree: Path, state_dir: Path) -> bool:
    if not (worktree / path).is_dir():
        return False
    git = Git(git_dir=_git_dir(path, state_dir), work_tree=worktree / path)
    status = git.run("status", "--porcelain", "--ignore-submodules=all").stdout
    return bool(status) or git.line("rev-parse", "HEAD") != commit


def _gitlinks(git: Git) -> dict[str, str]:
    entries = (entry.split("\t", 1) for entry in git.run("ls-tree", "-r", "-z", "--full-tree", "HEAD").names)
    return {path: facts.split()[2] for facts, path in entries if facts.startswith("160000 ")}


def _git_dir(path: str, state_dir: Path) -> Path:
    return state_dir / "submodules" / path.replace("%", "%25").replace("/", "%2F")


def _find_source(folder: Path, allowed: Iterable[Path]) -> Path | None:
    """Find the git directory of the user's own copy; none that lies outside the repository, wherever its link leads."""
    if not os.path.lexists(folder / ".git"):
        return None
    found = Git(folder=folder, is_exact=False).find("rev-parse", "--path-format=absolute", "--git-common-dir")
    if found is None or not any(is_within(Path(found).resolve(), place.resolve()) for place in allowed):
        return None
    return Path(found)


def _fill(path: str, commit: str, worktree: Path, source: Path | None, state_dir: Path) -> bool:
    if source is None:
        return False
    git_dir, here = _git_dir(path, state_dir), worktree / path
    try:
        if git_dir.exists():
            remove_folder(git_dir)
        git_dir.parent.mkdir(parents=True, exist_ok=True)
        files_only = Git(env={"GIT_ALLOW_PROTOCOL": "file"})
        files_only.run("clone", "--quiet", "--bare", "--no-tags", "--template=", "--", str(source), str(git_dir))
        git = Git(git_dir=git_dir, work_tree=here)
        git.run("config", "core.bare", "false")
        here.mkdir(parents=True, exist_ok=True)
        git.run("update-ref", "--no-deref", "HEAD", commit)
        check_size(git, commit, here)
        git.run("reset", "--quiet", "--hard", commit)
        write_whole(here / ".git", f"gitdir: {git_dir}\n")
    except WorkspaceError:
        return False
    return True
