"""The final report of every run that is over: JSON by `common/final-report@1`, and Markdown for a person."""

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from holdfast.engine.delivery import own_paths
from holdfast.engine.scope import RunScope, to_workspace_error
from holdfast.enums import RunStatus
from holdfast.errors import WorkspaceError
from holdfast.persistence.models import ApprovalRow, ArtifactRow, RunPhaseRow
from holdfast.persistence.rows import now_text
from holdfast.persistence.runs import read_approvals, read_artifacts, read_phases, read_spent, read_spent_by_phase
from holdfast.workspace import open_workspace, summarize_diff
from holdfast.workspace.files import write_whole


async def write_report(scope: RunScope, state: RunStatus, told: Mapping[str, Any]) -> Path:
    """Write both files and return the path of the JSON one; writing again replaces them."""
    report = await _collect(scope, state, told)
    folder = scope.config.data_dir / "reports" / scope.run_id
    try:
        await asyncio.to_thread(_write_both, folder, report)
    except OSError as error:
        raise to_workspace_error(error) from error
    return folder / "final-report.json"


async def _collect(scope: RunScope, state: RunStatus, told: Mapping[str, Any]) -> dict[str, Any]:
    phases = await read_phases(scope.db, scope.run_id)
    artifacts = await read_artifacts(scope.db, scope.run_id)
    approvals = await read_approvals(scope.db, run_id=scope.run_id)
    spent = await read_spent(scope.db, scope.run_id)
    by_phase = await read_spent_by_phase(scope.db, scope.run_id)
    files = await asyncio.to_thread(_changed_files, scope, phases)
    return {
        "runId": scope.run_id,
        "workflow": {
            "name": scope.template.name,
            "version": scope.template.version,
            "hash": scope.run.template_hash or "-",
        },
        "state": state.value,
        "summary": _summary(scope, state, phases, told),
        "requirements": scope.run.requirements_md,
        "phases": [
            _phase_facts(scope, key, phases.get(key), artifacts, by_phase)
            for key in (p.key for p in scope.template.phases)
        ],
        "approvals": [_approval_facts(row) for row in approvals],
        "cost_usd": spent.total_micros / 1_000_000,
        "unsettled_usd": spent.reserved_micros / 1_000_000,
        "error": told.get("error"),
        "cancelled": {"reason": told.get("reason", ""), "by": told.get("by", "")} if "reason" in told else None,
        "repository": scope.run.repo_path,
        "branch": scope.workspace.branch if scope.workspace else None,
        "files": files,
        "started_at": scope.run.started_at or scope.run.created_at,
        "ended_at": now_text(),
    }


def _phase_facts(
    scope: RunScope,
    key: str,
    row: RunPhaseRow | None,
    artifacts: Sequence[ArtifactRow],
    by_phase: Mapping[str, int],
) -> dict[str, Any]:
    accepted = [item for item in artifacts if item.phase_key == key and item.state == "accepted"]
    return {
        "key": key,
        "title": scope.template.phase(key).title,
        "state": row.state if row else "pending",
        "attempts": row.attempt if row else 0,
        "artifact": accepted[-1].path if accepted else None,
        "cost_usd": by_phase.get(key, 0) / 1_000_000,
        "error": row.error if row else None,
    }


def _approval_facts(row: ApprovalRow) -> dict[str, Any]:
    return {
        "phase": row.phase_key,
        "attempt": row.attempt,
        "state": row.state,
        "action": row.action,
        "by": row.decided_by,
        "comment": row.comment,
    }


def _changed_files(scope: RunScope, phases: Mapping[str, RunPhaseRow]) -> list[dict[str, Any]]:
    """What the run changed in the user's files; nothing where the workspace or the repository is gone."""
    done = sorted((row for row in phases.values() if row.tree), key=lambda row: row.ended_at or "")
    if not done:
        return []
    with contextlib.suppress(WorkspaceError):
        workspace = scope.workspace or open_workspace(scope.config.data_dir, scope.run_id)
        own = own_paths(workspace, scope.template)
        summary = summarize_diff(workspace.repo, workspace.base_commit, str(done[-1].tree))
        return [
            {"path": file.path, "added": file.added, "removed": file.removed}
            for file in summary.files
            if not any(fnmatchcase(file.path, pattern) for pattern in own)
        ]
    return []


def _summary(scope: RunScope, state: RunStatus, phases: Mapping[str, RunPhaseRow], told: Mapping[str, Any]) -> str:
    done = sum(row.state == "completed" for row in phases.values())
    start = f"{scope.template.name} ended {state.value}: {done} of {len(scope.template.phases)} phases completed."
    if error := told.get("error"):
        return f"{start} {error.get('message', '')}"
    if told.get("reason"):
        return f"{start} Reason: {told['reason']}."
    return start


def _write_both(folder: Path, report: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "final-report.json", json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    write_whole(folder / "final-report.md", to_markdown(report))


def to_markdown(report: Mapping[str, Any]) -> str:
    """The report for a person who was not there."""
    lines = [
        f"# {report['workflow']['name']}: {report['state']}",
        "",
        report["summary"],
        "",
        f"Run `{report['runId']}` on `{report['repository']}`, from {report['started_at']} to {report['ended_at']}, "
        f"for ${report['cost_usd']:.4f}.",
    ]
    if report["unsettled_usd"]:
        lines.append(f"${report['unsettled_usd']:.4f} of it is reserved for calls whose answer never came.")
    if error := report["error"]:
        lines += [
            "",
            f"**Why it failed** (`{error.get('code')}`): {error.get('message')}",
            "",
            str(error.get("hint", "")),
        ]
    lines += ["", "## Phases", "", "| phase | state | attempts | artifact | cost |", "| --- | --- | --- | --- | --- |"]
    for phase in report["phases"]:
        artifact = f"`{phase['artifact']}`" if phase["artifact"] else "–"
        lines.append(
            f"| {phase['title']} | {phase['state']} | {phase['attempts']} | {artifact} | ${phase['cost_usd']:.4f} |"
        )
    if report["approvals"]:
        lines += ["", "## Decisions", ""]
        lines += [f"- {_decision(item)}" for item in report["approvals"]]
    if report["files"]:
        lines += ["", "## Changed files", ""]
        lines += [f"- `{file['path']}` (+{file['added']} −{file['removed']})" for file in report["files"]]
    if report["requirements"]:
        lines += ["", "## What was wanted", "", report["requirements"]]
    return "\n".join(lines).rstrip() + "\n"


def _decision(item: Mapping[str, Any]) -> str:
    if item["action"] is None:
        return f"{item['phase']} (attempt {item['attempt']}): {item['state']}"
    comment = f": {item['comment']}" if item["comment"] else ""
    return f"{item['phase']} (attempt {item['attempt']}): {item['action']} by {item['by'] or 'someone'}{comment}"
