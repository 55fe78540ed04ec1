"""What a person is shown when a phase's result waits for them: the artifact, the change, why they are asked.

Rule: the change is everything since the last accepted state, however many attempts it took; what became different since
the person's last answer stands beside it.
"""

import glob
from contextlib import suppress
from typing import Any

from holdfast.engine.scope import RunScope
from holdfast.enums import ApprovalDecisionAction
from holdfast.errors import WorkspaceError
from holdfast.persistence.models import ApprovalRow
from holdfast.persistence.runs import read_approvals
from holdfast.workflow import ApprovalRule, Phase
from holdfast.workspace import diff, is_named, summarize_diff

_MAX_CHARS = 20_000
_REFUSALS = (ApprovalDecisionAction.REQUEST_CHANGES.value, ApprovalDecisionAction.REJECT.value)


async def describe_result(scope: RunScope, phase: Phase, attempt: int, content: str, tree: str) -> dict[str, Any]:
    """Describe the result of an attempt for whoever approves it; `tree` holds its files."""
    accepted = scope.history.accepted_tree.get(phase.key, tree)
    return {
        "artifact": phase.expected_artifact.path,
        "content": content[:_MAX_CHARS],
        **await scope.on_disk(lambda: _describe_change(scope, accepted, tree)),
        "workflow": scope.template.name,
        "next": [other.key for other in scope.template.phases if phase.key in (other.needs or ())],
        "reason": explain_approval(phase),
        "risk": phase.risk.value,
        **await _describe_since_answer(scope, phase, attempt, tree),
    }


def explain_approval(phase: Phase) -> str:
    """Say why a person is asked about the result of a phase."""
    if phase.approval is ApprovalRule.ALWAYS:
        return f"the workflow always asks for approval after phase {phase.key}"
    two = ", for which two different people must approve" if phase.risk.value == "critical" else ""
    return f"phase {phase.key} has risk {phase.risk.value}{two}"


async def _describe_since_answer(scope: RunScope, phase: Phase, attempt: int, tree: str) -> dict[str, Any]:
    """Describe what is different from what the person refused last; nothing if they have refused nothing yet."""
    decided = await scope.from_rows(lambda: read_approvals(scope.db, run_id=scope.run_id, state="decided"))
    refused = [row for row in decided if _is_refusal(row, phase) and row.attempt < attempt]
    if not refused:
        return {}
    last = max(refused, key=lambda row: (row.attempt, row.requested_at))
    seen = last.shown.get("subject", {}).get("tree") if isinstance(last.shown, dict) else None

    def compare() -> dict[str, Any]:
        with suppress(WorkspaceError):  # the tree may have been collected as garbage: then the whole change is enough
            return _describe_change(scope, str(seen), tree)
        return {}

    facts = {"approval_id": last.id, "attempt": last.attempt, "comment": last.comment, "by": last.decided_by}
    return {"since_answer": {**facts, **(await scope.on_disk(compare) if seen else {})}}


def _is_refusal(row: ApprovalRow, phase: Phase) -> bool:
    return row.about == "phase" and row.phase_key == phase.key and row.action in _REFUSALS


def _describe_change(scope: RunScope, before: str, after: str) -> dict[str, Any]:
    place = scope.place
    prefix = place.root.relative_to(place.worktree)
    artifacts = [glob.escape((prefix / path).as_posix()) for path in scope.template.artifact_paths]
    moved_aside = [f"{path}.before-*" for path in artifacts]
    files = [file for file in summarize_diff(place.repo, before, after).files if not is_named(moved_aside, file.path)]
    return {
        "diff": diff(place.repo, before, after, max_chars=_MAX_CHARS, without=moved_aside),
        "files": [file.path.encode(errors="replace").decode() for file in files],  # a name may be no text
        "added": sum(file.added or 0 for file in files),
        "removed": sum(file.removed or 0 for file in files),
    }
