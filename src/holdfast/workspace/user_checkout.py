"""What stands in the folder where the user works: read for a person at a terminal, in a few words each.

A run asks `repository` and `start`, which refuse what they cannot use. Here a folder without git, and a machine without
it, are an answer like any other.
"""

import shutil
import subprocess
from pathlib import Path

from holdfast.errors import WorkspaceError
from holdfast.workspace.git import Author, Git, identity


def find_git_version() -> str | None:
    """Find the version of the installed git, such as `2.39.2`; `None` where there is no git."""
    program = shutil.which("git")
    if program is None:
        return None
    words = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout.split()
    return words[2] if len(words) > 2 else "0"


def find_checkout(folder: Path) -> Path | None:
    """Find the top folder of the checkout that `folder` lies in, or `None`."""
    found = _read(folder, "rev-parse", "--show-toplevel")
    return Path(found) if found else None


def find_branch(folder: Path) -> str:
    """Find the branch that is checked out; `HEAD` where there is none."""
    return _read(folder, "symbolic-ref", "--short", "--quiet", "HEAD") or "HEAD"


def list_files(folder: Path) -> list[str]:
    """List the files that git knows in a folder and those it would add, in order; `[]` where git does not answer."""
    listed = _read(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return sorted(set(listed.split("\0")) - {""})


def read_status(folder: Path) -> str:
    """Return the commit that is checked out and what differs from it: the same text means that nothing was touched.

    Raises `WorkspaceError` where there is no commit.
    """
    git = Git(folder=folder.absolute(), is_exact=False)
    return f"{git.line('rev-parse', 'HEAD')}\n{git.line('status', '--porcelain')}"


def commit_new_repository(folder: Path, author: Author, message: str) -> None:
    """Make a repository on the branch `main` of a folder, with one commit of all its files by `author`.

    The author stays in the repository's settings, for the commits that a person makes there later.
    """
    git = Git(folder=folder.absolute(), is_exact=False, env=identity(author))
    git.run("init", "--quiet", "--initial-branch=main")
    git.run("config", "user.name", author.name)
    git.run("config", "user.email", author.email)
    git.run("add", "--all")
    git.run("commit", "--quiet", "--message", message)


def _read(folder: Path, *words: str) -> str:
    try:
        result = Git(folder=folder.absolute(), is_exact=False).run(*words, ok=range(256))
    except WorkspaceError:  # git is not installed
        return ""
    return result.stdout.decode(errors="replace").rstrip("\n") if result.exit_code == 0 else ""
