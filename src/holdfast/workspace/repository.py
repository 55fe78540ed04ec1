"""What the user's repository is: looked at, never changed.

Whatever the user named (checkout, subfolder, bare, shallow, linked worktree, submodule, folder without git) is one
`Repository` afterwards, or a `WorkspaceError` that says what is wrong with it.
"""

import os
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from holdfast.errors import BaseBranchMissing, RepositoryMissing, WorkspaceError
from holdfast.workspace.files import is_within, own_folders
from holdfast.workspace.git import HOLDFAST, Git, find_common_dir, identity
from holdfast.workspace.repository_guard.checkout_size import check_size

_MOST_NAMED = 100


@dataclass(frozen=True)
class Repository:
    """A git repository: its shared git directory, and the checkout the user works in, if there is one."""

    git_dir: Path
    checkout: Path | None = None
    prefix: str = ""
    is_shallow: bool = False

    @property
    def git(self) -> Git:
        return Git(git_dir=self.git_dir)

    @property
    def folder(self) -> Path | None:
        """The folder that the user named."""
        return self.checkout / self.prefix if self.checkout else None


def find_repository(path: Path) -> Repository | None:
    """Find the repository that `path` belongs to, or `None` for a plain folder (also one that a repository around it
    does not know a file of)."""
    if not os.path.lexists(path):
        raise RepositoryMissing(f"There is no repository at {path}: the path does not exist.", path=str(path))
    if not path.is_dir():
        raise RepositoryMissing(f"{path} is a file, not a folder.", hint="Name the folder.", path=str(path))
    if _is_git_dir(path):
        return _find_bare(path)
    before = _stamp_checkout(path)
    known = _FOUND.get(path)
    if known is not None and before is not None and known[0] == before:
        return known[1]
    found = _ask_git(path)
    if before is not None and found is not None and found.checkout == path and found.git_dir == path / ".git":
        if len(_FOUND) >= _MOST_REMEMBERED:
            _FOUND.clear()
        _FOUND[path] = (before, found)
    return found


_FOUND: dict[Path, tuple[object, Repository]] = {}
_MOST_REMEMBERED = 500


def _stamp_checkout(path: Path) -> object:
    """Return all that decides what git would say of a plain checkout; `None` for what is none."""
    git_dir = path / ".git"
    try:
        places = [(found.st_dev, found.st_ino, found.st_uid, found.st_mode) for found in (path.stat(), git_dir.lstat())]
        if not stat.S_ISDIR(places[1][3]) or not _is_git_dir(git_dir):
            return None
    except OSError:
        return None
    names = ("config", "config.worktree", "commondir", "shallow")
    return places, [_stamp_file(git_dir / name) for name in names]


def _stamp_file(path: Path) -> object:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _ask_git(path: Path) -> Repository | None:
    here = Git(folder=path, is_exact=False)
    places = ("--show-prefix", "--show-toplevel")  # outside a work tree git answers all but the last
    facts = here.run("rev-parse", "--path-format=absolute", "--git-common-dir", *_QUESTIONS, *places, ok=(0, 128))
    common, *answers = facts.line.split("\n")
    if len(answers) < len(_QUESTIONS):
        _check_is_plain(path, facts.stderr)
        return None
    is_bare, is_inside_git, is_shallow = (answer == "true" for answer in answers[: len(_QUESTIONS)])
    if is_bare or is_inside_git:
        raise _broken(path, _INSIDE)
    if facts.exit_code:
        raise _broken(path, facts.stderr.strip().splitlines()[-1] if facts.stderr.strip() else "git does not accept it")
    prefix, checkout = answers[-2].rstrip("/"), Path(answers[-1])
    if not is_within(path.resolve(), checkout.resolve()):
        raise _broken(path, f"its files are said to be in {checkout} (core.worktree)")
    if prefix and (path / ".git").exists():
        raise _broken(path, "git does not accept the .git that lies in it")
    if prefix and not here.run("ls-files", "-z", "--", ".").stdout:
        return None
    return Repository(Path(common), checkout, prefix, is_shallow)


_QUESTIONS = ("--is-bare-repository", "--is-inside-git-dir", "--is-shallow-repository")


def _check_is_plain(path: Path, stderr: str) -> None:
    is_plain = "not a git repository" in stderr and not (path / ".git").exists()
    if not is_plain:
        raise _broken(path, stderr.strip().splitlines()[0] if stderr.strip() else "git does not accept it")


def missing_folder(prefix: str, branch: str) -> WorkspaceError:
    """Say that a branch does not have the subfolder that the user named."""
    message = f"The folder {prefix!r} is not in branch {branch!r} of the repository."
    return WorkspaceError(message, hint="Commit it, or name another base branch.", path=prefix)


def _broken(path: Path, reason: str) -> WorkspaceError:
    hint = "Try `git status` there and repair what it names."
    return WorkspaceError(f"The repository at {path} cannot be used: {reason}.", hint=hint, path=str(path))


_INSIDE = "the path lies inside a git directory; name the folder that holds it"


def _is_git_dir(path: Path) -> bool:
    """Tell whether git would take the folder itself for a repository, one without files of its own."""
    return os.path.lexists(path / "HEAD") and (path / "objects").is_dir() and (path / "refs").is_dir()


def _find_bare(path: Path) -> Repository:
    """Find a bare repository. One below a checkout may be a part of it: its settings would be what a stranger wrote."""
    real = path.resolve()
    if ".git" in real.parts:
        raise _broken(path, _INSIDE)
    around = next((parent for parent in real.parents if os.path.lexists(parent / ".git")), None)
    if around is not None or os.path.lexists(real / ".git"):
        raise _broken(path, f"it is laid out as a bare repository inside the checkout {around or real}")
    facts = Git(git_dir=real, is_exact=False).run("rev-parse", *_QUESTIONS, ok=(0, 128))
    if facts.exit_code:
        raise _broken(path, facts.stderr.strip().splitlines()[0] if facts.stderr.strip() else "git does not accept it")
    is_bare, _, is_shallow = (answer == "true" for answer in facts.line.split("\n"))
    if not is_bare or (real / "commondir").exists():
        raise _broken(path, _INSIDE)
    return Repository(real, is_shallow=is_shallow)


def list_written_folders(repository: Repository) -> tuple[Path, ...]:
    """List the folders, links followed, that a run writes to in a repository: its refs, objects and worktrees."""
    names = ("", "refs", "refs/heads", "objects", "worktrees", "logs")
    folders = [repository.git_dir / name for name in names]
    if repository.checkout is not None:
        folders.append(repository.checkout)
    return tuple(Path(os.path.realpath(folder)) for folder in folders)


def git_at(repository: Repository) -> Git:
    """Return git where the user stands: each worktree has a HEAD of its own."""
    if repository.checkout is None:
        return Git(git_dir=repository.git_dir, is_exact=False)
    return Git(folder=repository.checkout, is_exact=False)


def resolve_base(repository: Repository, base_branch: str) -> str:
    """Resolve the commit to start from. A branch here comes first, then one of a remote, then any name of a commit."""
    git = git_at(repository)
    for name in (f"refs/heads/{base_branch}", f"refs/remotes/origin/{base_branch}", base_branch):
        commit = git.find("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        if commit:
            return commit
    branches = list_branches(repository)
    if not branches and git.find("rev-parse", "--verify", "--quiet", "HEAD") is None:
        return make_empty_start(repository)
    branches = tuple(name for name in branches if not name.startswith("holdfast/"))  # the ones of other runs
    known = f"one there is: {', '.join(branches[:20])}" if branches else "HEAD or a commit, for there is no branch"
    raise BaseBranchMissing(
        f"The repository has no branch {base_branch!r}.", branches=branches, hint=f"Start a run from {known}."
    )


def list_branches(repository: Repository) -> tuple[str, ...]:
    """List the branches here and of remotes by their short names."""
    listed = repository.git.line("for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/remotes")
    return tuple(listed.split())


def make_empty_start(repository: Repository) -> str:
    """Make a commit without files for a repository without commits; the same one each time."""
    epoch = datetime.fromtimestamp(0, UTC)
    git = Git(git_dir=repository.git_dir, env=identity(HOLDFAST, epoch))
    return git.line("commit-tree", git.line("mktree"), "-m", "Start of a repository without commits")


def is_empty_start(git: Git, commit: str) -> bool:
    return commit == make_empty_start(Repository(git_dir_of(git)))


def git_dir_of(git: Git) -> Path:
    """Return the git directory that all worktrees of a repository share."""
    if git.git_dir is not None and git.folder is None and (found := find_common_dir(git.git_dir)) is not None:
        return found
    return Path(git.line("rev-parse", "--path-format=absolute", "--git-common-dir"))


def find_dirty_paths(repository: Repository, *, data_dir: Path) -> tuple[str, ...]:
    """Find what the user has not committed, so a run does not see it: up to a hundred paths, none of them ours.

    Nothing where the commit that is checked out is more than a run can have: git would compare all of it first.
    """
    if repository.checkout is None:
        return ()
    head = git_at(repository).find("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    try:
        if head is not None:
            check_size(repository.git, head, data_dir)
    except WorkspaceError:
        return ()
    checkout, ours = repository.checkout, own_folders(data_dir, repository.checkout)
    paths = status_paths(Git(folder=checkout, is_exact=False))
    return tuple(path for path in paths if not any(_touches(checkout / path, own) for own in ours))[:_MOST_NAMED]


def _touches(path: Path, own: Path) -> bool:
    return is_within(path, own) or is_within(own, path)


def status_paths(git: Git, *, has_untracked: bool = True) -> list[str]:
    """List every path that is modified, staged or deleted in a checkout and, with `has_untracked`, untracked.

    What is changed inside a submodule is not looked for: that would run git there, by the submodule's own settings.
    """
    untracked = "--untracked-files=normal" if has_untracked else "--untracked-files=no"
    listed = git.run("status", "--porcelain=v1", "-z", "--no-renames", "--ignore-submodules=dirty", untracked).names
    return [entry[3:].rstrip("/") for entry in listed]
