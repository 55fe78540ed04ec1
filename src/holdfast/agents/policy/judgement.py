"""What a policy says of a tool call: allowed, to be asked, or denied; by which rule, and why."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from holdfast.persona import Verdict

_WEIGHT = {Verdict.ALLOW: 0, Verdict.ASK: 1, Verdict.DENY: 2}


@dataclass(frozen=True, slots=True)
class Judgement:
    """`rule` names what decided, for the journal; `reason` is for the agent and for the person who is asked."""

    verdict: Verdict
    rule: str
    reason: str = ""
    needs_network: bool = False

    def to_dict(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"verdict": self.verdict.value, "rule": self.rule}
        if self.reason:
            facts["reason"] = self.reason
        if self.needs_network:
            facts["network"] = True
        return facts


def allowed(rule: str = "default", *, needs_network: bool = False) -> Judgement:
    return Judgement(Verdict.ALLOW, rule, needs_network=needs_network)


def needs_approval(rule: str, reason: str, *, needs_network: bool = False) -> Judgement:
    return Judgement(Verdict.ASK, rule, reason, needs_network)


def denied(rule: str, reason: str) -> Judgement:
    return Judgement(Verdict.DENY, rule, reason)


def strictest(judgements: Iterable[Judgement]) -> Judgement:
    """Return the judgement that decides for all of them: the first of the strictest."""
    found = list(judgements)
    needs_network = any(judgement.needs_network for judgement in found)
    worst = max(found, key=lambda judgement: _WEIGHT[judgement.verdict], default=allowed())
    return Judgement(worst.verdict, worst.rule, worst.reason, needs_network and worst.verdict is not Verdict.DENY)
