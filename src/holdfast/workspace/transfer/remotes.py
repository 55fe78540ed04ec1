"""Repositories that are named by a URL: which may be used, a copy of one in this place, and a branch pushed to it.

Whoever runs holdfast has the keys, as their own git has them; a URL that holds a password is refused, so that none gets
into a row, an event or a message.
"""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from holdfast.errors import RepositoryMissing, RepositoryNotAllowed, WorkspaceConflict, WorkspaceError
from holdfast.workspace.files import hold_lock
from holdfast.workspace.git import Git
from holdfast.workspace.refs import is_own_branch
from holdfast.workspace.transfer.packs import find_missing

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SCP = re.compile(r"(?P<user>[A-Za-z0-9._-]+)@(?P<host>[A-Za-z0-9._-]+):(?P<path>[^\s:][^\s]*)")
_SCHEMES = ("https", "ssh")
_ABSENT = re.compile(r"couldn't find remote ref|no such ref|Could not find remote branch", re.IGNORECASE)


def is_remote(repository: str) -> bool:
    """Tell whether a repository is named by a URL and not by a path."""
    return bool(_URL.match(repository) or _SCP.fullmatch(repository))


def check_remote(url: str, *, allowed: Sequence[str] = (), is_request: bool = False) -> None:
    """Raise `RepositoryNotAllowed` for a URL that may not be used.

    `allowed` are beginnings of URLs: a `file` URL, and every one that a request names, must have one of them.
    """
    parts = urlsplit(url) if _URL.match(url) else None
    host = parts.hostname or "" if parts else _match_scp(url)["host"]
    scheme = parts.scheme.lower() if parts else "ssh"
    if (parts and parts.password is not None) or (parts and scheme == "https" and parts.username):
        hint = "Leave it out, and let git's own credential helper know it."
        raise RepositoryNotAllowed("The repository's URL holds a name or a password.", hint=hint)
    if scheme not in (*_SCHEMES, "file"):
        raise RepositoryNotAllowed(f"A repository is not fetched by {scheme}.", hint="Use https or ssh.")
    if host.startswith("-") or not url.isprintable() or " " in url or ".." in (parts.path if parts else url).split("/"):
        raise RepositoryNotAllowed("The repository's URL is not one that git takes safely.", hint="Write it plainly.")
    if (scheme == "file" or is_request) and not any(_is_below(url, entry) for entry in allowed):
        hint = "Whoever runs holdfast can list it in the setting allowed_repositories."
        raise RepositoryNotAllowed("This repository's URL is not among the allowed ones.", hint=hint)


def _match_scp(url: str) -> "re.Match[str]":
    found = _SCP.fullmatch(url)
    if found is None:
        raise RepositoryNotAllowed("This is no URL of a repository.", hint="Use https://… or git@host:path.")
    return found


def _is_below(url: str, entry: str) -> bool:
    return url == entry or url.startswith(f"{entry.rstrip('/')}/")


def mirror_path(url: str, data_dir: Path) -> Path:
    """Return where this place has its copy of a remote repository."""
    return data_dir.resolve() / "repositories" / f"remote-{hashlib.sha256(url.encode()).hexdigest()[:20]}.git"


def fetch_branch(url: str, branch: str | None, data_dir: Path) -> tuple[Path, str]:
    """Bring a branch to this place's copy as it is now, without one the remote's own; return copy and name.

    A branch that the remote does not have is not in the copy either. Raises `RepositoryMissing`.
    """
    mirror = _ensure_mirror(url, data_dir)
    with hold_lock(mirror.with_suffix(".lock")):
        name = branch or _find_head(mirror, url)
        if is_own_branch(name):
            raise RepositoryNotAllowed(f"{name} is a branch that a run works on.", hint="Name another branch.")
        ref = f"refs/heads/{name}"
        done = _remote_git(mirror, url).run("fetch", "--no-tags", "--quiet", url, f"+{ref}:{ref}", ok=(0, 1, 128))
        if done.exit_code and _ABSENT.search(done.stderr):
            Git(git_dir=mirror).run("update-ref", "-d", ref)
        elif done.exit_code:
            raise _unreached(url, done.stderr)
    return mirror, name


def open_mirror(url: str, commit: str, data_dir: Path) -> Path:
    """Return this place's copy of a remote repository, which has the commit. Raises `RepositoryMissing`."""
    mirror = _ensure_mirror(url, data_dir)
    if commit and not find_missing(mirror, [commit]):
        return mirror
    with hold_lock(mirror.with_suffix(".lock")):
        heads = "+refs/heads/*:refs/remotes/origin/*"
        done = _remote_git(mirror, url).run("fetch", "--no-tags", "--quiet", url, heads, ok=(0, 1, 128))
        if done.exit_code:
            raise _unreached(url, done.stderr)
    if commit and find_missing(mirror, [commit]):
        message = f"The commit {commit[:12]} that the run started from is on no branch of {url} any more."
        raise RepositoryMissing(message, hint="Push it again, then resume the run.", path=url)
    return mirror


def push_branch(url: str, branch: str, mirror: Path, before: str | None) -> None:
    """Push a branch of the copy. If it is not accepted, the copy's is set back to what it was `before`.

    Raises `WorkspaceConflict` if the remote's has moved meanwhile, `RepositoryMissing` if it cannot be reached.
    """
    ref = f"refs/heads/{branch}"
    done = _remote_git(mirror, url).run("push", "--quiet", "--porcelain", url, f"{ref}:{ref}", ok=(0, 1, 128))
    if not done.exit_code:
        return
    # crash: before it the copy is ahead of the remote; the next merge fetches first and begins from what is there.
    Git(git_dir=mirror).run("update-ref", *((ref, before) if before else ("-d", ref)))
    if "[rejected]" in done.stdout.decode(errors="replace") + done.stderr or "remote rejected" in done.stderr:
        message = f"Branch {branch} of {url} does not take the result: it has moved meanwhile, or is protected."
        raise WorkspaceConflict(message, paths=(), hint="Merge again, or name another branch with --into.")
    raise _unreached(url, done.stderr)


def _ensure_mirror(url: str, data_dir: Path) -> Path:
    mirror = mirror_path(url, data_dir)
    mirror.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(mirror.with_suffix(".lock")):
        if not (mirror / "HEAD").exists():
            Git().run("init", "--quiet", "--bare", "--template=", "--", str(mirror))
    return mirror


def _find_head(mirror: Path, url: str) -> str:
    done = _remote_git(mirror, url).run("ls-remote", "--symref", url, "HEAD", ok=(0, 1, 128))
    if done.exit_code:
        raise _unreached(url, done.stderr)
    found = re.search(r"^ref: refs/heads/(\S+)\tHEAD$", done.line, re.MULTILINE)
    return found[1] if found else "main"


def _remote_git(mirror: Path, url: str) -> Git:
    scheme = url.partition("://")[0].lower() if _URL.match(url) else "ssh"
    return Git(git_dir=mirror, env={"GIT_ALLOW_PROTOCOL": scheme})


def _unreached(url: str, stderr: str) -> WorkspaceError:
    lines = [line for line in stderr.splitlines() if line.strip()]
    reason = lines[-1].strip() if lines else "git says no more"
    message = f"The repository {url} cannot be reached from here: {reason}."
    return RepositoryMissing(message, hint="Try `git ls-remote` with it as the user that runs holdfast.", path=url)
