"""The final report of every run that is over: JSON by `common/final-report@1`, and Markdown for a person."""

import asyncio
import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.config import Config
from holdfast.engine.disk_work import run_interruptible
from holdfast.engine.patch import own_paths
from holdfast.engine.scope import RunScope, to_workspace_error
from holdfast.enums import RunPhaseState, RunStatus
from holdfast.errors import WorkspaceError
from holdfast.persistence.db import Database
from holdfast.persistence.models import ApprovalRow, ArtifactRow, RunPhaseRow, RunRow
from holdfast.persistence.runs import (
    Spending,
    StoredRun,
    read_approvals,
    read_artifacts,
    read_phases,
    read_spent_by_phase,
    sum_spending,
)
from holdfast.persistence.statements import now_text, put_report
from holdfast.runtime.checkpoint.base import Statement
from holdfast.runtime.run_fold.payload_text import phase_status
from holdfast.workflow import WorkflowTemplate
from holdfast.workspace import Workspace, is_named, open_workspace, read_setup, summarize_diff
from holdfast.workspace.files import write_whole

_VERDICT_CHARS = 60
_ABORT_S = 0.5  # how long the end of an aborted run waits for git


@dataclass(frozen=True)
class Reported:
    """What a report is written about: a run with its template, or what its rows say of one that cannot be read."""

    db: Database
    config: Config
    run: RunRow
    workflow: str
    version: int | str
    titles: Mapping[str, str]
    """Its phases in order."""
    template: WorkflowTemplate | None = None
    workspace: Workspace | None = None

    @classmethod
    def of(cls, scope: RunScope) -> "Reported":
        made = scope.template
        titles = {phase.key: phase.title for phase in made.phases}
        return cls(scope.db, scope.config, scope.run, made.name, made.version, titles, made, scope.workspace)

    @classmethod
    def of_rows(cls, db: Database, config: Config, stored: StoredRun) -> "Reported":
        row = stored.template
        name = (row.name if row else "") or stored.run.workflow or "unknown"
        version = (row.version if row else "") or "unknown"
        return cls(db, config, stored.run, name, version, {key: key for key in stored.phases})

    @property
    def run_id(self) -> str:
        return self.run.id


@dataclass(frozen=True)
class WrittenReport:
    """The path of the JSON file, the row that any server shows the report from, and the verdict in it."""

    path: Path
    row: Statement
    verdict: str | None = None


async def write_report(about: Reported, state: RunStatus, payload: Mapping[str, Any]) -> WrittenReport:
    """Write both files; writing again replaces them. The row is to be written with the event of the run's end.

    `payload` is what that event says.
    """
    report = await _collect(about, state, payload)
    folder = about.config.data_dir / "reports" / about.run_id
    try:
        await asyncio.to_thread(_write_both, folder, report)
    except OSError as error:
        raise to_workspace_error(error) from error
    return WrittenReport(folder / "final-report.json", put_report(about.run_id, report), report["verdict"])


async def _collect(about: Reported, state: RunStatus, payload: Mapping[str, Any]) -> dict[str, Any]:
    run = about.run
    phases = await read_phases(about.db, run.id)
    artifacts = await read_artifacts(about.db, run.id)
    approvals = await read_approvals(about.db, run_id=run.id)
    by_phase = await read_spent_by_phase(about.db, run.id)
    spent = sum_spending(by_phase.values())
    files = await _list_changed_files(about, phases, state)
    return {
        "runId": run.id,
        "workflow": {"name": about.workflow, "version": about.version, "hash": run.template_hash or "-"},
        "state": state.value,
        "summary": _summary(about, state, phases, payload),
        "verdict": find_verdict(about.titles, artifacts),
        "requirements": run.requirements_md,
        "phases": [
            _phase_facts(key, title, phases.get(key), artifacts, by_phase) | {"status": _status(phases.get(key), state)}
            for key, title in about.titles.items()
        ],
        "approvals": [_approval_facts(row) for row in approvals],
        "cost_usd": spent.total_micros / 1_000_000,
        "simulated_usd": spent.simulated_micros / 1_000_000,
        "unsettled_usd": spent.reserved_micros / 1_000_000,
        "error": payload.get("error"),
        "cancelled": {"reason": payload.get("reason", ""), "by": payload.get("by", "")}
        if "reason" in payload
        else None,
        "repository": run.repo_path,
        "branch": about.workspace.branch if about.workspace else None,
        "files": files,
        "started_at": run.started_at or run.created_at,
        "ended_at": now_text(),
    }


def _phase_facts(
    key: str,
    title: str,
    row: RunPhaseRow | None,
    artifacts: Sequence[ArtifactRow],
    by_phase: Mapping[str, Spending],
) -> dict[str, Any]:
    spent = by_phase.get(key, Spending())
    accepted = [item for item in artifacts if item.phase_key == key and item.state == "accepted"]
    return {
        "key": key,
        "title": title,
        "state": row.state if row else "pending",
        "attempts": row.attempt if row else 0,
        "artifact": accepted[-1].path if accepted else None,
        "cost_usd": spent.total_micros / 1_000_000,
        "simulated_usd": spent.simulated_micros / 1_000_000,
        "error": row.error if row else None,
    }


def _status(row: RunPhaseRow | None, state: RunStatus) -> str:
    return phase_status(row.state if row else "pending", state.value)


def find_verdict(phase_keys: Iterable[str], artifacts: Sequence[ArtifactRow]) -> str | None:
    """Find what the last review says: the `verdict` of the last phase's accepted artifact that has one."""
    accepted = {row.phase_key: row.content for row in artifacts if row.state == "accepted"}
    found = [read_verdict(accepted[key]) for key in phase_keys if key in accepted]
    return next((verdict for verdict in reversed(found) if verdict), None)


def read_verdict(content: str) -> str | None:
    """Read the verdict of an artifact's text; of one that is no JSON object or has none, nothing."""
    if '"verdict"' not in content:
        return None
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    verdict = value.get("verdict") if isinstance(value, dict) else None
    # An agent wrote it: it may hold what no row can.
    return _to_line(verdict)[:_VERDICT_CHARS] if isinstance(verdict, str) else None


def _to_line(text: str) -> str:
    """Return a text without what would begin another line of the report, or is no text at all."""
    return text if text.isprintable() else "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def _approval_facts(row: ApprovalRow) -> dict[str, Any]:
    return {
        "phase": row.phase_key,
        "attempt": row.attempt,
        "state": row.state,
        "action": row.action,
        "by": row.decided_by,
        "comment": row.comment,
    }


async def _list_changed_files(
    about: Reported, phases: Mapping[str, RunPhaseRow], state: RunStatus
) -> list[dict[str, Any]]:
    """List what the run changed; of one that was aborted only if that is quickly found, for a person waits."""
    limit_s = _ABORT_S if state is RunStatus.CANCELLED else None
    try:
        async with asyncio.timeout(limit_s):
            return await run_interruptible(lambda: _changed_files(about, phases))
    except TimeoutError:
        return []


def _changed_files(about: Reported, phases: Mapping[str, RunPhaseRow]) -> list[dict[str, Any]]:
    """List what the run changed in the user's files; nothing where the workspace or the repository is gone."""
    done = sorted((row for row in phases.values() if row.tree), key=lambda row: row.ended_at or "")
    if not done:
        return []
    with contextlib.suppress(WorkspaceError):
        workspace = about.workspace or open_workspace(about.config.data_dir, about.run_id)
        own = own_paths(workspace, about.template.artifact_paths) if about.template else []
        summary = summarize_diff(workspace.repo, workspace.base_commit, str(done[-1].tree))
        has_setup = about.template is None or bool(about.template.setup) or about.run.forked_from is not None
        of_setup = read_setup(workspace).find_unchanged(workspace, str(done[-1].tree)) if has_setup else set()
        return [
            {"path": file.path.encode(errors="replace").decode(), "added": file.added, "removed": file.removed}
            for file in summary.files
            if not is_named(own, file.path) and file.path not in of_setup
        ]
    return []


def _summary(about: Reported, state: RunStatus, phases: Mapping[str, RunPhaseRow], payload: Mapping[str, Any]) -> str:
    done = sum(row.state == RunPhaseState.COMPLETED for row in phases.values())
    start = f"{about.workflow} ended {state.value}: {done} of {len(about.titles)} phases completed."
    if error := payload.get("error"):
        return f"{start} {error.get('message', '')}"
    if about.template is None:
        start += " What it was made from could not be read; this is what its rows say."
    if payload.get("reason"):
        return f"{start} Reason: {payload['reason']}."
    return start


def _write_both(folder: Path, report: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "final-report.json", to_json_text(report))
    write_whole(folder / "final-report.md", to_markdown(report))


def to_json_text(report: Mapping[str, Any]) -> str:
    """Render the report as its JSON file has it."""
    return json.dumps(report, indent=2, ensure_ascii=False) + "\n"


def to_markdown(report: Mapping[str, Any]) -> str:
    """Render the report for a person who was not there."""
    lines = [
        f"# {report['workflow']['name']}: {report['state']}",
        "",
        report["summary"],
        "",
        f"Run `{report['runId']}` on `{report['repository']}`, from {report['started_at']} to {report['ended_at']}, "
        f"{_describe_cost(report)}.",
    ]
    if report["unsettled_usd"]:
        lines.append(f"${report['unsettled_usd']:.4f} of it is perhaps paid: for calls that ended without an answer.")
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
        lines.append(f"| {phase['title']} | {phase['status']} | {phase['attempts']} | {artifact} | {_dollars(phase)} |")
    if report["approvals"]:
        lines += ["", "## Decisions", ""]
        lines += [f"- {_decision(item)}" for item in report["approvals"]]
    if report["files"]:
        lines += ["", "## Changed files", ""]
        lines += [f"- `{_to_line(file['path'])}` (+{file['added']} −{file['removed']})" for file in report["files"]]
    if report["requirements"]:
        lines += ["", "## What was wanted", "", report["requirements"]]
    return "\n".join(lines).rstrip() + "\n"


def _describe_cost(report: Mapping[str, Any]) -> str:
    is_rehearsal = report["simulated_usd"] and not report["cost_usd"]
    return f"a rehearsal, {_dollars(report)}" if is_rehearsal else f"for {_dollars(report)}"


def _dollars(facts: Mapping[str, Any]) -> str:
    """Format an amount with four decimals, since the report is where amounts are compared."""
    real, simulated = (facts.get(name) or 0.0 for name in ("cost_usd", "simulated_usd"))
    if not simulated:
        return f"${real:.4f}"
    return f"${real:.4f} and ${simulated:.4f} simulated" if real else f"${simulated:.4f} simulated"


def _decision(item: Mapping[str, Any]) -> str:
    if item["action"] is None:
        return f"{item['phase']} (attempt {item['attempt']}): {item['state']}"
    comment = f": {item['comment']}" if item["comment"] else ""
    return f"{item['phase']} (attempt {item['attempt']}): {item['action']} by {item['by'] or 'someone'}{comment}"
