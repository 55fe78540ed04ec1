"""Repositories that are named by a URL: which may be used, a copy of one in this place, and a branch pushed to it.

Whoever runs holdfast has the keys, as their own git has them; a URL that holds a password is refused, so that none gets
into a row, an event or a message.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from holdfast.errors import RepositoryMissing, RepositoryNotAllowed, WorkspaceConflict, WorkspaceError
from holdfast.runtime.checkpoint.private_files import make_private_folder
from holdfast.workspace.files import hold_lock
from holdfast.workspace.git import TIMEOUT_S, Git
from holdfast.workspace.refs import find_name_fault, is_own_branch
from holdfast.workspace.transfer.packs import find_missing
from holdfast.workspace.transfer.remote_git import RemoteGit

_MIRROR = "remote-"
_MOST_REASON_CHARS = 300
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SCP = re.compile(r"(?P<user>[A-Za-z0-9._-]+)@(?P<host>[A-Za-z0-9._-]+):(?P<path>[^\s:][^\s]*)")
_NO_PATH = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*::|[^/\s]+@[^/\s]+:")
_SCHEMES = ("https", "ssh")
_HIDDEN = re.compile(r"%2e|%2f|%5c|[?#\\]", re.IGNORECASE)
_ABSENT = re.compile(r"couldn't find remote ref|no such ref|Could not find remote branch", re.IGNORECASE)


def is_remote(repository: str) -> bool:
    """Tell whether a repository is named by a URL, or by what git would take for one, and not by a path."""
    return bool(_URL.match(repository) or _NO_PATH.match(repository))


def to_folder(repository: str | Path) -> Path | None:
    """Return the folder that a repository is; `None` for a URL, which has no folder whose definitions could count."""
    return None if isinstance(repository, str) and is_remote(repository) else Path(repository)


def check_remote(url: str, *, allowed: Sequence[str] = (), is_request: bool = False) -> None:
    """Raise `RepositoryNotAllowed` for a URL that may not be used.

    `allowed` are beginnings of URLs: a `file` URL, and every one that a request names, must have one of them.
    """
    parts = urlsplit(url) if _URL.match(url) else None
    scp = None if parts else _match_scp(url)
    host, path = (parts.hostname or "", parts.path) if parts else (scp["host"], scp["path"]) if scp else ("", "")
    scheme = parts.scheme.lower() if parts else "ssh"
    if (parts and parts.password is not None) or (parts and scheme == "https" and parts.username):
        hint = "Leave it out, and let git's own credential helper know it."
        raise RepositoryNotAllowed("The repository's URL holds a name or a password.", hint=hint)
    if scheme not in (*_SCHEMES, "file"):
        raise RepositoryNotAllowed(f"A repository is not fetched by {scheme}.", hint="Use https or ssh.")
    is_plain = url.isprintable() and " " not in url and not _HIDDEN.search(url)
    if host.startswith("-") or not is_plain or ".." in path.split("/") or (scheme != "file" and not host):
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
    return url == entry or url.startswith(entry if entry.endswith(":") else f"{entry.rstrip('/')}/")


def mirror_path(url: str, data_dir: Path) -> Path:
    """Return where this place has its copy of a remote repository."""
    return _folder_of_mirrors(data_dir) / f"{_MIRROR}{hashlib.sha256(url.encode()).hexdigest()[:20]}.git"


def is_mirror(repository: Path, data_dir: Path) -> bool:
    """Return whether a repository is this place's copy of a remote one."""
    return repository.name.startswith(_MIRROR) and repository.resolve().parent == _folder_of_mirrors(data_dir)


def _folder_of_mirrors(data_dir: Path) -> Path:
    return data_dir.resolve() / "repositories"


@contextmanager
def fetched_branch(url: str, branch: str | None, data_dir: Path) -> Iterator[tuple[Path, str]]:
    """Bring a branch to this place's copy as it is now, without one the remote's own; the block gets copy and name.

    Nobody else in this place fetches or merges until the block ends, so the branch is what the remote has. One that
    the remote does not have is not in the copy either. Raises `RepositoryMissing`.
    """
    mirror = _ensure_mirror(url, data_dir)
    name = branch or list_branches(url)[1]  # before the lock: who asks a server that is silent keeps no other waiting
    if is_own_branch(name):
        raise RepositoryNotAllowed(f"{name} is a branch that a run works on.", hint="Name another branch.")
    with hold_lock(mirror.with_suffix(".lock"), timeout_s=TIMEOUT_S):
        if find_name_fault(name) is None:  # whoever uses the name says what is wrong with it
            _fetch(url, name, mirror)
        yield mirror, name


def _fetch(url: str, branch: str, mirror: Path) -> None:
    ref = f"refs/heads/{branch}"
    done = remote_git(url, mirror).run("fetch", "--no-tags", "--quiet", url, f"+{ref}:{ref}", ok=(0, 1, 128))
    if done.exit_code and _ABSENT.search(done.stderr):
        gone = f"delete {ref}\ndelete refs/remotes/origin/{branch}\n"
        Git(git_dir=mirror).run("update-ref", "--stdin", stdin=gone.encode())
    elif done.exit_code:
        raise unreached(url, done.stderr)


def list_branches(url: str) -> tuple[tuple[str, ...], str]:
    """List the branches that a remote has, and the one that it calls its own. Raises `RepositoryMissing`."""
    done = remote_git(url).run("ls-remote", "--symref", url, "HEAD", "refs/heads/*", ok=(0, 1, 128))
    if done.exit_code:
        raise unreached(url, done.stderr)
    head = re.search(r"^ref: refs/heads/(\S+)\tHEAD$", done.line, re.MULTILINE)
    return tuple(re.findall(r"\trefs/heads/(\S+)$", done.line, re.MULTILINE)), head[1] if head else "main"


def open_mirror(url: str, commit: str | None, data_dir: Path, *, allowed: Sequence[str] = ()) -> Path:
    """Return this place's copy of a remote repository, which has the commit.

    Raises `RepositoryMissing`, and as `check_remote` does if this place may not use what another one started.
    """
    check_remote(url, allowed=allowed)
    mirror = _ensure_mirror(url, data_dir)
    if commit and not find_missing(mirror, [commit]):
        return mirror
    with hold_lock(mirror.with_suffix(".lock"), timeout_s=TIMEOUT_S):
        heads = "+refs/heads/*:refs/remotes/origin/*"
        done = remote_git(url, mirror).run("fetch", "--no-tags", "--prune", "--quiet", url, heads, ok=(0, 1, 128))
        if done.exit_code:
            raise unreached(url, done.stderr)
    if commit and find_missing(mirror, [commit]):
        message = f"The commit {commit[:12]} that the run started from is on no branch of {url} any more."
        raise RepositoryMissing(message, hint="Push it again, then resume the run.", path=url)
    return mirror


def push_branch(url: str, branch: str, mirror: Path, before: str | None) -> None:
    """Push a branch of the copy, inside `fetched_branch`. If that is refused, it is set back to what it was `before`.

    Raises `WorkspaceConflict` if the remote's has moved meanwhile, `RepositoryMissing` if it cannot be reached.
    """
    ref = f"refs/heads/{branch}"
    try:
        push_commit(remote_git(url, mirror), url, ref, branch)
    except WorkspaceError:
        # crash: before it the copy is ahead of the remote; the next merge fetches first and begins from what is there.
        Git(git_dir=mirror).run("update-ref", *((ref, before) if before else ("-d", ref)))
        raise


def push_commit(git: Git, url: str, commit: str, branch: str, *, place: str = "") -> None:
    """Push a commit to a branch of the remote. Raises as `push_branch` does; `place` is what git knows the URL by."""
    target = f"{commit}:refs/heads/{branch}"
    done = git.run("push", "--quiet", "--porcelain", place or url, target, ok=(0, 1, 128))
    if done.exit_code and re.search(r"\[(remote )?rejected\]", done.stdout.decode(errors="replace") + done.stderr):
        message = f"Branch {branch} of {url} does not take the result: {_find_refusal(done.stderr)}."
        raise WorkspaceConflict(message, paths=(), hint="Merge again, or name another branch with --into.")
    if done.exit_code:
        raise unreached(url, done.stderr)


def _find_refusal(stderr: str) -> str:
    """Return what the remote says about a push that it refuses, in a line; else what it usually is."""
    lines = [line.removeprefix("remote:").strip() for line in stderr.splitlines() if line.startswith("remote:")]
    answer = " ".join(line for line in lines if line and not line.startswith("error: hook declined"))
    plain = "".join(char if char.isprintable() else " " for char in answer)
    return f"it answers “{plain[:_MOST_REASON_CHARS].rstrip()}”" if plain else "it has moved meanwhile, or is protected"


def _ensure_mirror(url: str, data_dir: Path) -> Path:
    mirror = mirror_path(url, data_dir)
    make_private_folder(data_dir)
    mirror.parent.mkdir(parents=True, exist_ok=True)
    if (mirror / "HEAD").exists():
        return mirror
    with hold_lock(mirror.with_suffix(".lock"), timeout_s=TIMEOUT_S):
        if not (mirror / "HEAD").exists():
            Git().run("init", "--quiet", "--bare", "--template=", "--", str(mirror))
    return mirror


def remote_git(url: str, mirror: Path | None = None, env: Mapping[str, str] | None = None) -> Git:
    """Return git that may reach the remote, from a repository of ours, with more variables if there are any.

    A server that says nothing ends it within a minute.
    """
    # The user's own settings may have ssh in the place of https (`url.….insteadOf`), or the other way round.
    protocols = "file" if url.lower().startswith("file:") else ":".join(_SCHEMES)
    return RemoteGit(git_dir=mirror, env={"GIT_ALLOW_PROTOCOL": protocols, **(env or {})})


def unreached(url: str, stderr: str) -> WorkspaceError:
    """Say why a remote was not reached, without what its URL may hold of a password."""
    lines = [line.strip() for line in stderr.splitlines() if not re.match(r"\s*(remote:|warning:|$)", line)]
    reason = re.sub(r"//[^/@\s]+@", "//", lines[0]).rstrip(".") if lines else "git says no more"
    message = f"The repository {url} cannot be reached from here: {reason}."
    return RepositoryMissing(message, hint="Try `git ls-remote` with it as the user that runs holdfast.", path=url)
