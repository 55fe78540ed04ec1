"""How a run's result reaches the user: as commits on their branch, or as files in the folder it was copied from.

Rule: who brings it holds the run meanwhile, so that nobody drives it and no second merge is under way.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from holdfast.config import Config
from holdfast.engine.loading import get_run, read_template
from holdfast.engine.merge_preview import default_message
from holdfast.engine.patches import own_paths
from holdfast.engine.scope import utc_now
from holdfast.errors import RunNotInState
from holdfast.persistence.db import Database
from holdfast.persistence.runs import StoredRun
from holdfast.runtime.events import EventKind, create_event
from holdfast.runtime.stores import open_journal
from holdfast.workflow import WorkflowTemplate
from holdfast.workspace import ResultStep, deliver_result, merge_result, open_workspace
from holdfast.workspace.to_the_end import to_the_end


async def merge_run(
    db: Database, config: Config, run_id: str, *, into: str | None = None, by: str = "", message: str | None = None
) -> dict[str, Any]:
    """Bring what the completed phases made to the user. Raises `WorkspaceConflict` with nothing changed.

    `message` is that of the last commit; a conversation makes one commit, named after its files by default.
    The journal has who asked for it, and what came of it. May be repeated. Whoever is cancelled meanwhile is so when
    git has ended and that is written. Raises `RunNotFound`, `RunBusy` while
    someone drives the run, `TemplateLoadFailed`, and `RunNotInState` if no phase is completed.
    """
    known = await get_run(db, run_id)
    async with open_journal(db.store) as journal:
        claim = await journal.claim(known.run.id)
        try:
            stored = await get_run(db, known.run.id)
            template = read_template(stored)
            steps = _to_steps(stored, template)
            if not steps:
                raise RunNotInState(f"Run {run_id} has completed no phase yet; there is nothing to merge.")
            message = message or await asyncio.to_thread(default_message, config, stored, template)
            if message:
                steps[-1] = ResultStep(steps[-1].tree, message)
            asked = create_event(claim.run_id, EventKind.RUN_MERGE_REQUESTED, into=into, by=by)
            await journal.append(claim.run_id, [asked], claim=claim)

            async def bring() -> dict[str, Any]:
                # crash: the branch may have moved already; the same merge again finds it done, and says so.
                merged = await asyncio.to_thread(_bring, config, claim.run_id, steps, template, into)
                told = create_event(claim.run_id, EventKind.RUN_MERGED, **_facts(merged), by=by)
                await journal.append(claim.run_id, [told], claim=claim)
                return merged

            return await to_the_end(bring())
        finally:
            await journal.release(claim)


def _bring(
    config: Config, run_id: str, steps: list[ResultStep], template: WorkflowTemplate, into: str | None
) -> dict[str, Any]:
    workspace = open_workspace(config.data_dir, run_id)
    own = own_paths(workspace, template.artifact_paths)
    if workspace.is_private:
        delivered = deliver_result(workspace, steps[-1].tree, without=own)
        message = f"{len(delivered.paths)} files were written to {delivered.folder}."
        return {"run_id": run_id, "folder": str(delivered.folder), "paths": list(delivered.paths), "message": message}
    merged = merge_result(workspace, steps, target_branch=into or workspace.base_branch, at=utc_now(), without=own)
    action = merged.action.value.replace("_", " ")
    changed = f"{len(merged.summary.files)} files, +{merged.summary.added} −{merged.summary.removed}"
    where = f" and its checkout {merged.checkout}" if merged.checkout else ""
    return {
        "run_id": run_id,
        "action": merged.action.value,
        "branch": merged.branch,
        "commit": merged.commit,
        "message": f"{merged.branch}{where}: {action}, {changed}, now at {merged.commit[:10]}.",
    }


def _facts(merged: Mapping[str, Any]) -> dict[str, Any]:
    """What the journal keeps; a folder can have many files, and names that are no text."""
    return {key: merged[key] for key in ("action", "branch", "commit", "folder") if key in merged}


def _to_steps(stored: StoredRun, template: WorkflowTemplate) -> list[ResultStep]:
    done = [row for row in stored.phases.values() if row.state == "completed" and row.tree]
    done.sort(key=lambda row: row.ended_at or "")
    title = stored.run.title or stored.run.requirements_md.strip().partition("\n")[0] or template.name
    return [
        ResultStep(str(row.tree), f"{title[:60]}: {row.phase_key}\n\nWorkflow {template.name}, run {stored.run.id}.")
        for row in done
    ]
