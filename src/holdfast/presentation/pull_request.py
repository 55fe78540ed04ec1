"""Where the host of a repository has its form for a pull request: the branch is pushed, the rest is filled in there.

Only hosts whose form is known by the repository's own URL have one; nobody is asked for a token.
"""

import re
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

_SCP = re.compile(r"[\w.-]+@(?P<host>[\w.-]+):(?P<path>[^\s]+)")
_MOST_CHARS = 40


@dataclass(frozen=True)
class PullRequestForm:
    """The branch that the result is pushed to, and the address of the form that asks for its merge."""

    host: str
    branch: str
    url: str


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
        return PullRequestForm(host, branch, f"{page}/compare/{target}...{source}?expand=1")
    if _is_at(host, "gitlab"):
        query = f"merge_request%5Bsource_branch%5D={source}&merge_request%5Btarget_branch%5D={target}"
        return PullRequestForm(host, branch, f"{page}/-/merge_requests/new?{query}")
    if host == "bitbucket.org":
        return PullRequestForm(host, branch, f"{page}/pull-requests/new?source={source}&dest={target}")
    if host == "codeberg.org" or _is_at(host, "gitea") or _is_at(host, "forgejo"):
        return PullRequestForm(host, branch, f"{page}/compare/{target}...{source}")
    return None


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
