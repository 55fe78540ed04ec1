"""How often a person is asked about tool calls, and what an answer for the whole run covers."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.agents.policy.file_policy import WRITING_TOOLS
from holdfast.agents.policy.judgement import Judgement, needs_approval
from holdfast.agents.policy.tool_policy import CODING_AGENT
from holdfast.agents.policy.web_policy import WEB_FETCH, find_place
from holdfast.persona import ApprovalMode, Verdict

Judge = Callable[[str, Mapping[str, Any]], Judgement]
MODE_RULE = "approval-mode"
_CHANGING = WRITING_TOOLS | {"execute", CODING_AGENT}
# One plain command: no variables, patterns, quotes, redirections or second commands; its words are what it runs.
_PLAIN_LINE = re.compile(r"[A-Za-z0-9_./:=@%+,-]+(?: +[A-Za-z0-9_./:=@%+,-]+)*")
_SUBCOMMAND = re.compile(r"[a-z][a-z0-9-]*")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./,-]*")


def with_mode(judge: Judge, mode: ApprovalMode) -> Judge:
    """Return a policy that asks also about calls that the other one allows, as the mode wants; it denies no less."""
    if mode is ApprovalMode.RISKY:
        return judge

    def ask_more(name: str, args: Mapping[str, Any]) -> Judgement:
        judgement = judge(name, args)
        is_meant = mode is ApprovalMode.ALWAYS or name in _CHANGING
        if judgement.verdict is not Verdict.ALLOW or not is_meant:
            return judgement
        what = "every call" if mode is ApprovalMode.ALWAYS else "every change"
        return needs_approval(MODE_RULE, f"the persona asks about {what}", needs_network=judgement.needs_network)

    return ask_more


def kind_of(name: str, args: Mapping[str, Any], rule: str) -> dict[str, str] | None:
    """Return what a call has in common with those that one answer may cover, or `None` for one that stands alone.

    Of a command that is its program and subcommand (`git push`) with every word that is no plain name or path: another
    option, address, setting or refspec makes another kind. Without a subcommand right behind the program it is the
    whole line. Of a page it is host and port. A line that does more than run one plain command, or that names its
    program by a path, is of no kind: nobody could foresee what else the answer would cover.
    """
    if name == WEB_FETCH:
        place = find_place(args.get("url"))
        return None if place is None else {"tool": name, "rule": rule, "words": f"{place[0]}:{place[1]}"}
    if name != "execute":
        return {"tool": name, "rule": rule, "words": ""}
    line = args.get("command")
    if not isinstance(line, str) or _PLAIN_LINE.fullmatch(line.strip()) is None:
        return None
    program, *rest = line.split()
    if "/" in program or "=" in program:
        return None
    if not rest or _SUBCOMMAND.fullmatch(rest[0]) is None:
        return {"tool": name, "rule": rule, "words": " ".join([program, *rest]), "is_whole": "yes"}
    special = " ".join(word for word in rest[1:] if _PLAIN_NAME.fullmatch(word) is None)
    kind = {"tool": name, "rule": rule, "words": f"{program} {rest[0]}"}
    return kind | ({"special": special} if special else {})


def describe_kind(kind: Mapping[str, str]) -> str:
    """Describe a kind of call for the person who may allow it."""
    if kind["tool"] == WEB_FETCH and kind["words"]:
        return f"pages of {kind['words']}"
    if kind.get("is_whole"):
        return f"the command {kind['words']!r}"
    if not kind["words"]:
        return f"calls of {kind['tool']}"
    special = f" and have {kind['special']!r}" if kind.get("special") else ""
    return f"commands that begin with {kind['words']!r}{special}, with no other options"
