"""Which pages an agent may ask for: the hosts that its persona's commands reach, and the same questions to a person."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from holdfast.agents.policy.judgement import Judgement, allowed, denied, needs_approval
from holdfast.persona import Permissions, Verdict
from holdfast.workspace.commands.network_proxy import HostRules

WEB_FETCH = "web_fetch"
WEB_SEARCH = "web_search"
WEB_TOOLS = (WEB_FETCH, WEB_SEARCH)
_RULE = "network"


def judge_web(name: str, args: Mapping[str, Any], permissions: Permissions) -> Judgement:
    """Judge a call of one of the tools for the web. Whether an address is a private one is found out by the tool."""
    if permissions.network is Verdict.DENY:
        return denied(_RULE, "the persona allows no network")
    place = "the search engine of the settings" if name == WEB_SEARCH else find_place(args.get("url"))
    if place is None:
        return allowed("no-address")
    if permissions.hosts and isinstance(place, tuple) and not HostRules(permissions.hosts).allows(*place):
        return denied(_RULE, f"the persona's network list does not have {place[0]}:{place[1]}")
    if permissions.network is Verdict.ASK:
        target = place if isinstance(place, str) else f"{place[0]}:{place[1]}"
        return needs_approval(_RULE, f"it sends what the agent asks for to {target}")
    return allowed(_RULE)


def find_place(url: object) -> tuple[str, int] | None:
    """Return host and port of an address of the web; `None` for anything else."""
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname or not parts.hostname.isprintable():
        return None
    return parts.hostname.rstrip("."), port
