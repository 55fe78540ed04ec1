"""What a workflow asks of people and may do, in words, before anybody starts it."""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast.enums import RiskLevel
from holdfast.presentation.format import duration, money, plural
from holdfast.workflow import ApprovalRule, Phase, WorkflowTemplate

_BOX_CHARS = 20
RISK_TONES = {
    RiskLevel.LOW: "good",
    RiskLevel.MEDIUM: "busy",
    RiskLevel.HIGH: "waiting",
    RiskLevel.CRITICAL: "bad",
}


@dataclass(frozen=True)
class PhaseSummary:
    """A phase as it is shown: the tone of its risk, how many people decide after it, and its facts as pairs."""

    key: str
    title: str
    lines: Sequence[str]
    """The title as it fits into the graph's box."""
    role: str
    risk: str
    tone: str
    people: int
    approval: str
    facts: Sequence[tuple[str, str]]
    instructions: str


@dataclass(frozen=True)
class WorkflowSummary:
    summary: str
    cautions: Sequence[str]
    phases: Sequence[PhaseSummary]


def summarize_workflow(template: WorkflowTemplate) -> WorkflowSummary:
    approvals = sum(phase.requires_approval for phase in template.phases)
    risk = max((phase.risk for phase in template.phases), key=list(RiskLevel).index)
    people = plural(approvals, "approval") if approvals else "no approval"
    return WorkflowSummary(
        f"{plural(len(template.phases), 'phase')} · {people} · risk up to {risk.value}",
        find_cautions(template),
        [_summarize_phase(phase, template) for phase in template.phases],
    )


def _summarize_phase(phase: Phase, template: WorkflowTemplate) -> PhaseSummary:
    people = (2 if phase.risk is RiskLevel.CRITICAL else 1) if phase.requires_approval else 0
    return PhaseSummary(
        phase.key,
        phase.title,
        wrap(phase.title, _BOX_CHARS),
        phase.role,
        phase.risk.value,
        RISK_TONES[phase.risk],
        people,
        describe_approval(phase, people),
        _list_facts(phase, template),
        phase.instructions,
    )


def wrap(text: str, most: int) -> list[str]:
    """Wrap a text into at most two lines of so many characters; what does not fit ends in an ellipsis."""
    lines = textwrap.wrap(text, most, break_long_words=False, break_on_hyphens=False)
    cut = [len(line) > most or (index == 1 and len(lines) > 2) for index, line in enumerate(lines)]
    return [f"{line[: most - 1]}…" if is_cut else line for line, is_cut in zip(lines[:2], cut, strict=False)]


def describe_approval(phase: Phase, people: int) -> str:
    is_rule = phase.approval is not ApprovalRule.AUTO
    why = f"this workflow {phase.approval.value} asks here" if is_rule else f"its risk is {phase.risk.value}"
    if not people:
        return f"Goes on by itself: {why}."
    return f"{'Two people approve' if people == 2 else 'A person approves'} the result: {why}."


def _list_facts(phase: Phase, template: WorkflowTemplate) -> list[tuple[str, str]]:
    role = template.role(phase.role)
    liked = f"; preferably {', '.join(role.preferred_backends)}" if role.preferred_backends else ""
    tries = f", {phase.attempts} attempts" if phase.attempts > 1 else ""
    facts = {
        "Role": f"{role.id}: {', '.join(role.required_capabilities) or 'anyone'}{liked}",
        "Hands in": f"{phase.expected_artifact.path} as {phase.expected_artifact.schema_id}",
        "After": ", ".join(phase.needs or ()),
        "Time limit": f"{duration(phase.timeout_seconds)}{tries}",
        "Money limit": money(phase.budget_usd) if phase.budget_usd else "",
        "Files": "may be read only" if phase.read_only else "",
        "Must pass": "; ".join(" ".join(argv) for argv in phase.checks),
    }
    return [(name, value) for name, value in facts.items() if value]


def find_cautions(template: WorkflowTemplate) -> list[str]:
    """List what could go wrong or surprise, as sentences."""
    phases = template.phases

    def quote(fits: Callable[[Phase], bool]) -> str:
        return ", ".join(f"“{phase.title}”" for phase in phases if fits(phase))

    critical = quote(lambda phase: phase.risk is RiskLevel.CRITICAL)
    unasked = quote(lambda phase: phase.risk is not RiskLevel.LOW and not phase.requires_approval)
    commands = [" ".join(argv) for argv in template.commands]
    few = "; ".join(commands[:3]) + ("; …" if len(commands) > 3 else "")
    in_branch = "Files change only in the run's own branch; nothing reaches yours until someone merges it."
    return [
        "No phase may change files." if all(phase.read_only for phase in phases) else in_branch,
        *([f"{critical}: critical, so two people must approve."] if critical else []),
        *([f"{unasked}: nobody is asked, though the risk is not low."] if unasked else []),
        *([f"Runs {plural(len(commands), 'command')} of its own: {few}"] if commands else []),
        *(
            [f"Copies {', '.join(template.copy_files[:4])} into the workspace, also where git ignores them."]
            if template.copy_files
            else []
        ),
    ]
