"""Where the host of a repository has its form for a pull request: a branch is pushed, the rest is filled in there.

Only hosts whose form is known by the repository's own URL have one; nobody is asked for a token.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote, urlsplit

from holdfast.workspace.git import Git

_SCP = re.compile(r"[\w.-]+@(?P<host>[\w.-]+):(?P<path>[^\s]+)")
_MOST_CHARS = 40


@dataclass(frozen=True)
class PullRequestForm:
    """The branch that the result is pushed to, and the address of the form that asks for its merge."""

    host: str
    branch: str
    url: str
    repository: str = ""
    """The URL to push to. That of a clone's remote may hold a password: it is for git alone."""
    remote: str = ""
    """The clone's name for it; empty for a run on the URL itself."""
    target: str = ""
    """The host's branch that should get the result."""


def find_pull_request_form(repository: str, *, base: str, title: str, run_id: str) -> PullRequestForm | None:
    """Return the form for a run's result; `None` for a folder, and for a host whose form is not known."""
    host, path = _split(repository)
    parts = [quote(part) for part in path.removesuffix(".git").strip("/").split("/")]
    if len(parts) < 2 or not all(parts):
        return None
    branch = _to_branch(title, run_id)
    source, target = quote(branch, safe=""), quote(base, safe="")
    page = f"https://{host}/{'/'.join(parts)}"
    if _is_at(host, "github"):
        url = f"{page}/compare/{target}...{source}?expand=1"
    elif _is_at(host, "gitlab"):
        query = f"merge_request%5Bsource_branch%5D={source}&merge_request%5Btarget_branch%5D={target}"
        url = f"{page}/-/merge_requests/new?{query}"
    elif host == "bitbucket.org":
        url = f"{page}/pull-requests/new?source={source}&dest={target}"
    elif host == "codeberg.org" or _is_at(host, "gitea") or _is_at(host, "forgejo"):
        url = f"{page}/compare/{target}...{source}"
    else:
        return None
    return PullRequestForm(host, branch, url, repository, target=base)


def find_form_of_clone(repo: Path, *, base: str, title: str, run_id: str) -> PullRequestForm | None:
    """Return the form at the host that a clone came from: the upstream of its branch `base`, else `origin`."""
    git = Git(git_dir=repo)
    known, followed = git.line("remote").splitlines(), git.find("config", "--get", f"branch.{base}.remote")
    remote = followed if followed in known else "origin"
    if not remote or remote not in known:
        return None
    target = _find_target(git, remote, base)
    written = [git.find("config", "--get", f"remote.{remote}.{key}") for key in ("pushurl", "url")]
    # As it is written there, else as the user's settings rewrite it: an abbreviation such as gh: names no host.
    for url in (written[0] or written[1], git.find("remote", "get-url", "--push", remote)):
        form = find_pull_request_form(url or "", base=target, title=title, run_id=run_id)
        if form is not None:
            return replace(form, remote=remote)
    return None


def _find_target(git: Git, remote: str, base: str) -> str:
    """Return the name of the remote's branch that `base` follows; its own one where it has none of that name."""
    tracked = f"refs/remotes/{remote}/"
    if git.find("config", "--get", f"branch.{base}.remote") == remote:
        upstream = git.find("config", "--get", f"branch.{base}.merge") or ""
        if upstream.startswith("refs/heads/"):
            return upstream.removeprefix("refs/heads/")
    if git.find("rev-parse", "--verify", "--quiet", f"{tracked}{base}") is None:
        head = git.find("symbolic-ref", "--quiet", f"{tracked}HEAD") or ""
        if head.startswith(tracked):
            return head.removeprefix(tracked)
    return base


def _split(repository: str) -> tuple[str, str]:
    if scp := _SCP.fullmatch(repository):
        return scp["host"].lower(), scp["path"]
    try:
        parts = urlsplit(repository)
        return (parts.hostname or "", parts.path) if parts.scheme in ("https", "ssh") else ("", "")
    except ValueError:
        return "", ""


def _is_at(host: str, name: str) -> bool:
    """Tell whether a host is the product's own or, as it is usually called, a company's own one."""
    return host == f"{name}.com" or host.startswith(f"{name}.")


def _to_branch(title: str, run_id: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", title.lower())[:_MOST_CHARS].strip("-")
    return "-".join(part for part in ("run", run_id[:8], words) if part)
