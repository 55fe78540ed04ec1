"""Makes git know the run's worktree, from whatever a kill, a prune or an agent has left of it.

    known to git   folder      then
    no             no          `git worktree add`
    no             has files   adopted: the files stay as they are, git gets to know them anew
    half           any         the half entry holds nothing and is dropped, then as above
    yes            no          made again; the caller writes its files
    yes            yes         a `.git` file that is gone or altered is written again

A worktree is locked: `git worktree prune` of the user does not drop it while the data directory is away.
"""

import os
from pathlib import Path

from holdfast.errors import WorkspaceError
from holdfast.workspace.files import hold_lock, read_text_if_there, remove_folder, write_whole
from holdfast.workspace.git import Git
from holdfast.workspace.repository import git_dir_of

READY_MARK = "holdfast-ready"
_REASON = "a holdfast run works here"


def ensure_registered(git: Git, worktree: Path, branch: str) -> tuple[Path, bool]:
    """Register the worktree; return its own git directory, and whether its files are complete."""
    worktree.parent.mkdir(parents=True, exist_ok=True)
    aside = worktree.with_name(f"{worktree.name}.adopted")
    git_dir = find_git_dir(git, worktree)
    if git_dir is None and not aside.exists() and _has_files(worktree):
        worktree.rename(aside)  # crash: the folder `.adopted` says that files wait to be brought back
    if git_dir is None:
        # One run of ours at a time: git itself does not make two worktrees at once reliably.
        with hold_lock(git_dir_of(git)):
            git_dir = _register(git, worktree, branch)
    for name in ("index.lock", "HEAD.lock"):
        (git_dir / name).unlink(missing_ok=True)
    if aside.exists():
        _bring_back(aside, worktree, git_dir)
    if not worktree.exists():
        (git_dir / READY_MARK).unlink(missing_ok=True)  # crash: a folder without files is not taken for a lost one
        worktree.mkdir()
    _ensure_link(worktree, git_dir)
    return git_dir, (git_dir / READY_MARK).exists()


def find_git_dir(git: Git, worktree: Path) -> Path | None:
    """Find the worktree's git directory, if git knows the worktree. Entries that were never finished are dropped."""
    for entry in sorted((git_dir_of(git) / "worktrees").glob(f"{worktree.name}*")):
        link = entry / "gitdir"
        target = link.read_text().strip() if link.exists() else ""
        if target not in ("", f"{worktree}/.git"):
            continue
        if (entry / READY_MARK).exists() or _is_finished(entry):
            return entry
        # An entry of this name without a target was cut off while it was made; it holds no work.
        if target or entry.name == worktree.name:
            remove_folder(entry)
    return None


def forget_worktree(git: Git, worktree: Path) -> None:
    """Let git forget a worktree whose folder is gone. May be repeated after a kill in the middle."""
    if find_git_dir(git, worktree) is None:
        return
    # An entry that lost some of its files to a killed call is none that git would remove.
    git.run("worktree", "remove", "--force", "--force", "--", str(worktree), ok=(0, 128))
    if entry := find_git_dir(git, worktree):
        remove_folder(entry)


def _is_finished(entry: Path) -> bool:
    if not (entry / "commondir").exists() or not (entry / "gitdir").exists():
        return False
    head = (entry / "HEAD").read_text(errors="replace") if (entry / "HEAD").exists() else ""
    if head.startswith("ref: refs/heads/holdfast"):
        return True  # the second step is done, and a run's branch is there
    commit = Git(git_dir=entry).find("rev-parse", "--verify", "--quiet", "HEAD")
    # git writes zeros into HEAD first and the branch in a second step.
    return bool(commit) and set(str(commit)) != {"0"}


def _has_files(worktree: Path) -> bool:
    if os.path.lexists(worktree) and (worktree.is_symlink() or not worktree.is_dir()):
        raise WorkspaceError(f"{worktree} should be the run's folder and is something else.", path=str(worktree))
    return worktree.is_dir() and any(entry.name != ".git" for entry in worktree.iterdir())


def _write_entry(repo: Path, worktree: Path, branch: str) -> Path | None:
    """Write what `git worktree add` would, at once and without its processes; `None` where git has to decide.

    Git has to where the branch is checked out elsewhere, and where refs or settings are not in the usual files.
    """
    entry, head = repo / "worktrees" / worktree.name, f"ref: refs/heads/{branch}\n"
    heads = (repo / "HEAD", *(repo / "worktrees").glob("*/HEAD"))
    is_usual = not (repo / "reftable").exists() and not (repo / "config.worktree").exists()
    if not is_usual or os.path.lexists(entry) or any(head == read_text_if_there(file) for file in heads):
        return None
    part = repo / f"holdfast-{worktree.name}.part"
    if part.exists():
        remove_folder(part)
    part.mkdir()
    for name, text in (("HEAD", head), ("commondir", "../..\n"), ("gitdir", f"{worktree}/.git\n"), ("locked", _REASON)):
        (part / name).write_text(text)
    entry.parent.mkdir(exist_ok=True)
    part.rename(entry)  # crash: before it a folder that git does not look at, after it a whole entry
    return entry


def _register(git: Git, worktree: Path, branch: str) -> Path:
    if (written := _write_entry(git_dir_of(git), worktree, branch)) is not None:
        return written
    (worktree / ".git").unlink(missing_ok=True)
    add = ("worktree", "add", "--quiet", "--no-checkout", "--lock", "--reason", _REASON)
    taken = git.run(*add, "--", str(worktree), branch, ok=(0, 128))
    if taken.exit_code and ("already checked out" in taken.stderr or "already used by" in taken.stderr):
        # The user looks at the run's branch in another checkout; its commit will do.
        git.run(*add, "--detach", "--", str(worktree), branch)
    elif taken.exit_code:
        git.run(*add, "--", str(worktree), branch)
    git_dir = find_git_dir(git, worktree)
    if git_dir is None:
        raise WorkspaceError(f"git did not register the worktree {worktree}.", path=str(worktree))
    return git_dir


def _bring_back(aside: Path, worktree: Path, git_dir: Path) -> None:
    write_whole(git_dir / READY_MARK, "")  # crash: the mark comes first, so that no file of these is written anew
    Git(git_dir=git_dir, work_tree=aside).run("read-tree", "HEAD")
    (aside / ".git").unlink(missing_ok=True)
    (worktree / ".git").unlink(missing_ok=True)
    if worktree.exists():
        worktree.rmdir()
    aside.rename(worktree)


def _ensure_link(worktree: Path, git_dir: Path) -> None:
    link, content = worktree / ".git", f"gitdir: {git_dir}\n"
    if link.is_symlink():
        link.unlink()
    if link.is_dir():
        raise WorkspaceError(
            f"The worktree {worktree} holds a .git folder that is not the run's.",
            hint="Something made a repository in it; move that .git folder away and resume.",
            path=str(link),
        )
    if not link.exists() or link.read_text(errors="replace") != content:
        write_whole(link, content)
