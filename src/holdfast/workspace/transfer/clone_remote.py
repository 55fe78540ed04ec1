"""The remote that the user's own clone came from: where it has a branch, and a commit pushed there.

Git runs in an empty repository of ours that only borrows the clone's objects. So the user's own settings and keys
count, and none of the clone's, which may be a stranger's: no proxy, no rewritten URL, no credential helper. The URL
reaches git as a variable: what it may hold of a password is in no list of processes.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from holdfast.workspace.git import Git
from holdfast.workspace.repository_guard.git_settings import to_environment
from holdfast.workspace.transfer.pull_request_form import PullRequestForm
from holdfast.workspace.transfer.remotes import check_remote, push_commit, remote_git, unreached
from holdfast.workspace.worktree import Workspace

_NAME = "clone"


@dataclass(frozen=True)
class CloneRemote:
    """A remote as it can be reached; `url` is without a password."""

    git: Git
    url: str

    def fetch(self, branch: str) -> str | None:
        """Bring a branch of the remote to the clone's objects and return its commit; `None` if there is none."""
        ref = f"refs/heads/{branch}"
        found = self.git.run("ls-remote", _NAME, ref, ok=(0, 1, 128))
        if found.exit_code:
            raise unreached(self.url, found.stderr)
        tip = found.line.partition("\t")[0]
        if not tip:
            return None
        done = self.git.run("fetch", "--no-tags", "--quiet", _NAME, f"+{ref}:{ref}", ok=(0, 1, 128))
        if done.exit_code:
            raise unreached(self.url, done.stderr)
        return self.git.line("rev-parse", ref)

    def push(self, commit: str, branch: str) -> None:
        """Push a commit as a branch; one that has moved is not overwritten."""
        push_commit(self.git, self.url, commit, branch, place=_NAME)


@contextmanager
def open_clone_remote(workspace: Workspace, form: PullRequestForm) -> Iterator[CloneRemote]:
    """Open the remote of a run's clone. Raises `RepositoryNotAllowed` for a URL that git does not take safely."""
    url = without_password(form.repository)
    check_remote(url)
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        kind = "sha256" if len(workspace.base_commit) == 64 else "sha1"
        Git().run("init", "--quiet", "--bare", "--template=", f"--object-format={kind}", "--", folder)
        settings = {f"remote.{_NAME}.url": form.repository}
        git = remote_git(url, Path(folder), to_environment(settings) | _borrow(workspace.repo))
        git.run("update-ref", "refs/heads/@base", workspace.base_commit)  # so that its history is not fetched again
        yield CloneRemote(git, url)


def without_password(url: str) -> str:
    """Return the URL without the name and the password that one by https may hold."""
    parts = urlsplit(url)
    is_web = parts.scheme == "https" and parts.netloc
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if is_web else url


def _borrow(repo: Path) -> dict[str, str]:
    shallow = repo / "shallow"
    cut = {"GIT_SHALLOW_FILE": str(shallow)} if shallow.is_file() else {}
    return {"GIT_OBJECT_DIRECTORY": str(repo / "objects"), **cut}
