"""Submodules of a run's worktree, filled from the user's own copies without a network.

Their git directories lie beside the run's state and are always named explicitly: one inside the worktree could be
rewritten by an agent into settings that run commands. Work inside a submodule is not carried by snapshots; it is named.
"""

import json
from pathlib import Path

from holdfast.errors import WorkspaceError
from holdfast.workspace.files import remove_folder, write_whole
from holdfast.workspace.git import Git

_LIST = "submodules.json"


def fill_submodules(git: Git, *, worktree: Path, checkout: Path | None, state_dir: Path) -> tuple[str, ...]:
    """Check out each submodule at the commit that HEAD names; returns the paths of those that stay empty."""
    gitlinks = _gitlinks(git)
    filled = {path: commit for path, commit in gitlinks.items() if _fill(path, commit, worktree, checkout, state_dir)}
    if gitlinks:
        write_whole(state_dir / _LIST, json.dumps(filled))
    return tuple(path for path in gitlinks if path not in filled)


def find_changed_submodules(worktree: Path, state_dir: Path) -> tuple[str, ...]:
    """Find submodules with changes: a tree of the run names their commit only, and would lose the work."""
    if not (state_dir / _LIST).exists():
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


def _fill(path: str, commit: str, worktree: Path, checkout: Path | None, state_dir: Path) -> bool:
    if checkout is None or not (checkout / path / ".git").exists():
        return False
    git_dir, here = _git_dir(path, state_dir), worktree / path
    try:
        if git_dir.exists():
            remove_folder(git_dir)
        git_dir.parent.mkdir(parents=True, exist_ok=True)
        source = Git(folder=checkout / path).line("rev-parse", "--path-format=absolute", "--git-common-dir")
        Git().run("clone", "--quiet", "--bare", "--no-tags", "--template=", "--", source, str(git_dir))
        git = Git(git_dir=git_dir, work_tree=here)
        git.run("config", "core.bare", "false")
        here.mkdir(parents=True, exist_ok=True)
        git.run("update-ref", "--no-deref", "HEAD", commit)
        git.run("reset", "--quiet", "--hard", commit)
        write_whole(here / ".git", f"gitdir: {git_dir}\n")
    except WorkspaceError:
        return False
    return True
