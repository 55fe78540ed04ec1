"""Makes the git directory that a sandboxed command sees: read-only, without secrets and without the rest.

The repository's own git directory has every branch, stash and lost commit, files with secrets that were committed once,
and passwords in the addresses of its remotes. The view has the history of the run's base commit, at most `MOST_COMMITS`
of it, under the same names: commits and trees as they are, so that ids hold, and in the place of each file with a
secret's name a note. `git status`, `diff`, `log`, `show` and `blame` work in it.
"""

import shutil
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath

from holdfast.workspace.commands.sandbox import GitView
from holdfast.workspace.files import hold_lock, remove_folder, write_whole
from holdfast.workspace.git import Git
from holdfast.workspace.worktree import Workspace

MOST_COMMITS = 200
NOTE = b"[A file that may hold a secret. holdfast does not show it.]\n"
_CONFIG = """\
[core]
\trepositoryformatversion = {version}
\tfilemode = true
\tbare = false
\tlogallrefupdates = false
\tfsmonitor = false
\tworktree = {worktree}
[gc]
\tauto = 0
"""
_LONG_IDS = "[extensions]\n\tobjectformat = sha256\n"
_LONG = 64


def open_git_view(workspace: Workspace, is_secret: Callable[[PurePosixPath], bool]) -> GitView:
    """Return the view of a run's git directory, made on first use. Two processes at once make it once."""
    folder = workspace.state_dir / "git-view"
    view = GitView(folder / "git", folder / "link", workspace.worktree)
    if view.link.exists():
        return view
    with hold_lock(workspace.state_dir / "git-view.lock"):
        if not view.link.exists():
            if folder.exists():
                remove_folder(folder)  # half-made by a process that was killed
            _make(workspace, view, is_secret)
            # crash: without the link the next call makes all of it anew.
            write_whole(view.link, f"gitdir: {view.git_dir}\n")
    return view


def _make(workspace: Workspace, view: GitView, is_secret: Callable[[PurePosixPath], bool]) -> None:
    git, folder = workspace.git, view.git_dir
    for name in ("objects/pack", "refs/heads", "info"):
        (folder / name).mkdir(parents=True)
    is_long = len(workspace.base_commit) == _LONG
    config = _CONFIG.format(worktree=_quote(str(workspace.worktree)), version=int(is_long))
    (folder / "config").write_text(config + (_LONG_IDS if is_long else ""))
    (folder / "HEAD").write_text(f"ref: refs/heads/{workspace.branch}\n")
    commits = _list_commits(git, workspace.base_commit)
    visible, secrets = _sort_objects(git, commits, is_secret)
    git.run("pack-objects", "--quiet", "--delta-base-offset", str(folder / "objects/pack/pack"), stdin=_lines(visible))
    own = Git(git_dir=folder)
    edge = [commit for commit, parents in commits.items() if any(parent not in commits for parent in parents)]
    if edge:
        (folder / "shallow").write_bytes(_lines(sorted(edge)))
    refs = [f"{workspace.base_commit} refs/heads/{workspace.branch}"]
    if workspace.base_branch != workspace.branch:
        refs.append(f"{workspace.base_commit} refs/heads/{workspace.base_branch}")
    if secrets:
        note = own.line("hash-object", "-w", "--stdin", "-t", "blob", stdin=NOTE)
        refs += [f"{note} refs/replace/{blob}" for blob in secrets]
    (folder / "packed-refs").write_bytes(_lines(sorted(refs, key=lambda line: line.partition(" ")[2])))
    if (workspace.git_dir / "index").exists():
        shutil.copyfile(workspace.git_dir / "index", folder / "index")


def _list_commits(git: Git, tip: str) -> dict[str, list[str]]:
    """Return the newest commits from the tip on, each with its parents."""
    lines = git.line("rev-list", "--parents", f"--max-count={MOST_COMMITS}", tip).splitlines()
    return {words[0]: words[1:] for words in (line.split() for line in lines)}


def _sort_objects(
    git: Git, commits: Iterable[str], is_secret: Callable[[PurePosixPath], bool]
) -> tuple[list[str], list[str]]:
    """Return all objects of the commits, apart from files with the name of a secret, and those."""
    found = git.run(
        "rev-list", "--objects", "--missing=allow-any", "--no-walk=unsorted", "--stdin", stdin=_lines(commits)
    )
    visible: list[str] = []
    named: list[str] = []
    for line in found.stdout.decode(errors="surrogateescape").splitlines():
        name, _, path = line.partition(" ")
        (named if path and is_secret(PurePosixPath(path)) else visible).append(name)
    if not named:
        return visible, []
    kinds = git.run("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=_lines(named))
    secrets = [line.split()[0] for line in kinds.line.splitlines() if line.endswith(" blob")]
    return visible + sorted(set(named) - set(secrets)), sorted(set(secrets))


def _lines(words: Iterable[str]) -> bytes:
    return "".join(f"{word}\n" for word in words).encode()


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
