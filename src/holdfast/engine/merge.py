"""How a run's result reaches the user: as commits on their branch, or as files in the folder it was copied from.

Rule: who brings it holds the run meanwhile, so that nobody drives it and no second merge is under way.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from holdfast.concurrency import finish_then_cancel
from holdfast.config import Config
from holdfast.engine.merge_preview import default_message, describe_base_commits
from holdfast.engine.patch import own_paths, record_requests
from holdfast.engine.pull_request import get_form, push_result
from holdfast.engine.run.load import get_run, read_template
from holdfast.engine.run.local_files import bring_files
from holdfast.engine.scope import utc_now
from holdfast.enums import RunPhaseState
from holdfast.errors import RepositoryMissing, RunNotInState, WorkspaceError
from holdfast.persistence.db import Database
from holdfast.persistence.deletion import OVER
from holdfast.persistence.runs import StoredRun
from holdfast.persistence.statements import set_merged
from holdfast.runtime.events import EventKind, create_event
from holdfast.runtime.stores import open_journal
from holdfast.workflow import WorkflowTemplate
from holdfast.workspace import (
    Git,
    MergeAction,
    Merged,
    MergeOptions,
    ResultStep,
    Workspace,
    deliver_result,
    merge_result,
    open_workspace,
    read_setup,
)
from holdfast.workspace.cleanup.disposal import Disposal, dispose_files
from holdfast.workspace.cleanup.leftovers import RunPlaces
from holdfast.workspace.transfer.pull_request_form import PullRequestForm
from holdfast.workspace.transfer.remotes import check_remote, fetched_branch, is_remote, push_branch

_EMPTY = "Nothing to merge: the run changed no files."


@dataclass(frozen=True)
class MergeRequest:
    """What a person asks of a merge: the branch to bring the result to, and how."""

    into: str | None = None
    """The branch; without one it is the run's base."""
    can_create: bool = False
    is_squashed: bool = False
    message: str = ""
    is_dry_run: bool = False
    keeps_worktree: bool = False
    is_pull_request: bool = False
    """To a branch of its own at the repository's host, which has a form for the rest."""


async def merge_run(
    db: Database, config: Config, run_id: str, request: MergeRequest | None = None, *, by: str = ""
) -> dict[str, Any]:
    """Bring what the completed phases made to the user. Raises `WorkspaceConflict` with nothing changed.

    The worktree of a run that is over goes with its branch, unless the request or the settings say otherwise; what is
    in it stays reachable by the run's refs.
    The journal has who asked for it, and what came of it; a dry run leaves nothing. May be repeated. Whoever is
    cancelled meanwhile is so when git has ended and that is written. Raises `RunNotFound`, `RunBusy` while
    someone drives the run, `TemplateLoadFailed`, `TargetBranchMissing`, `RunNotInState` if no phase is completed, and
    `PullRequestFormMissing`.
    """
    request = request or MergeRequest()
    known = await get_run(db, run_id)
    async with open_journal(db.store) as journal:
        claim = await journal.claim(known.run.id)
        try:
            stored = await get_run(db, known.run.id)
            form = None
            if request.is_pull_request:
                form = await asyncio.to_thread(get_form, config.data_dir, stored.run)
                request = replace(request, into=form.branch, can_create=True)
            result = _Result.of(stored, form)
            if not result.steps:
                raise RunNotInState(f"Run {run_id} has completed no phase yet; there is nothing to merge.")
            await bring_files(db, config, stored.run, [step.tree for step in result.steps])
            if not request.message:
                message = await asyncio.to_thread(default_message, config, stored, result.template, request.into)
                request = replace(request, message=message or "")
            if request.is_dry_run:
                return await finish_then_cancel(asyncio.to_thread(_bring, config, result, request))
            requested = create_event(claim.run_id, EventKind.RUN_MERGE_REQUESTED, into=request.into, by=by)
            await journal.append(claim.run_id, [requested], claim=claim)

            async def bring() -> dict[str, Any]:
                # crash: the branch may have moved already; the same merge again finds it done, and says so.
                merged = await asyncio.to_thread(_bring, config, result, request)
                event = create_event(claim.run_id, EventKind.RUN_MERGED, **_to_payload(merged), by=by)
                into = f"{merged['branch']} of {form.host}" if form else merged.get("branch") or merged.get("folder")
                rows = [set_merged(claim.run_id, into)] if into and merged["message"] != _EMPTY else []
                await journal.append(claim.run_id, [event], claim=claim, rows=rows)
                if stored.run.state not in OVER or request.keeps_worktree or config.keep_worktrees:
                    return merged
                # crash: the merge stands; the next clean-up removes the worktree.
                return merged | await asyncio.to_thread(_tidy, config, claim.run_id, merged["message"])

            return await finish_then_cancel(bring())
        finally:
            await journal.release(claim)


@dataclass(frozen=True)
class _Result:
    """What a run has to bring: its completed phases in the order of their ends, and what its one commit would say."""

    run_id: str
    template: WorkflowTemplate
    steps: list[ResultStep]
    summary: str
    is_simulated: bool
    repository: str
    form: PullRequestForm | None = None

    @classmethod
    def of(cls, stored: StoredRun, form: PullRequestForm | None = None) -> "_Result":
        template = read_template(stored)
        done = [row for row in stored.phases.values() if row.state == RunPhaseState.COMPLETED and row.tree]
        done.sort(key=lambda row: row.ended_at or "")
        title = stored.run.title or stored.run.requirements_md.strip().partition("\n")[0] or template.name
        body = f"Workflow {template.name}, run {stored.run.id}."
        steps = [
            ResultStep(str(row.tree), f"{title[:60]}: {row.phase_key}\n\n{body}", label=row.phase_key) for row in done
        ]
        summary = f"{title[:72]}\n\n{body}"
        is_simulated = bool(stored.run.is_simulated)
        return cls(stored.run.id, template, steps, summary, is_simulated, stored.run.repo_path, form)


def _bring(config: Config, result: _Result, request: MergeRequest) -> dict[str, Any]:
    workspace = open_workspace(config.data_dir, result.run_id)
    if workspace.is_carried:
        raise RepositoryMissing(
            f"There is no repository at {result.repository} on this machine; here are only the run's own files.",
            hint="Merge it on the machine that has it, or take the patch: holdfast runs diff RUN.",
            path=result.repository,
        )
    own = own_paths(workspace, result.template.artifact_paths)
    left_out = read_setup(workspace).list_left_out(workspace, result.steps[-1].tree)
    if workspace.is_private:
        merged = _bring_to_folder(workspace, result, request, own)
    else:
        merged = _bring_to_branch(config, workspace, result, request, own)
    dry = {"dry_run": True} if request.is_dry_run else {}
    facts = {"left_out": record_requests(left_out), "is_simulated": result.is_simulated}
    return {"run_id": result.run_id, **dry, **merged, **facts}


def _bring_to_folder(
    workspace: Workspace, result: _Result, request: MergeRequest, own: Sequence[str]
) -> dict[str, Any]:
    delivered = deliver_result(workspace, result.steps[-1].tree, without=own, is_dry_run=request.is_dry_run)
    count = len(delivered.paths)
    words = "would be written" if request.is_dry_run else "were written" if count != 1 else "was written"
    message = f"{count} file{'' if count == 1 else 's'} {words} to {delivered.folder}." if count else _EMPTY
    return {"folder": str(delivered.folder), "paths": list(delivered.paths), "message": message}


def _bring_to_branch(
    config: Config, workspace: Workspace, result: _Result, request: MergeRequest, own: Sequence[str]
) -> dict[str, Any]:
    message = request.message or (result.summary if request.is_squashed else "")
    options = MergeOptions(request.is_squashed, message, request.can_create, request.is_dry_run)
    target, form = request.into or workspace.base_branch, result.form
    url = result.repository if is_remote(result.repository) else None
    if url:
        check_remote(url, allowed=config.allowed_repositories)
    if form and form.remote:
        merged = push_result(workspace, result.steps, form, own=own, options=options)
    else:
        with nullcontext() if url is None else fetched_branch(url, target, config.data_dir):
            before = Git(git_dir=workspace.repo).find("rev-parse", "--verify", "--quiet", f"refs/heads/{target}")
            merged = merge_result(
                workspace, result.steps, target_branch=target, at=utc_now(), without=own, options=options
            )
            if url and not request.is_dry_run and not merged.is_empty:
                push_branch(url, target, workspace.repo, before)
    return {
        **({"host": form.host, "link": form.url} if form else {}),
        "action": merged.action.value,
        "branch": merged.branch,
        "commit": "" if request.is_dry_run else merged.commit,
        "commits": list(merged.commits),
        "files": [{"path": file.path, "added": file.added, "removed": file.removed} for file in merged.summary.files],
        "base_commits": list(merged.base_commits),
        "message": _describe(merged, workspace.base_branch, form, is_dry_run=request.is_dry_run),
    }


def _describe(merged: Merged, base_branch: str, form: PullRequestForm | None, *, is_dry_run: bool) -> str:
    branch = f"{merged.branch} of {form.host}" if form else merged.branch
    if merged.is_empty:
        return _EMPTY
    if merged.action is MergeAction.NOTHING_TO_DO:
        return f"Nothing to merge: {branch} has the result already."
    action = merged.action.value.replace("_", "-")
    count = len(merged.summary.files)
    changed = f"{count} file{'' if count == 1 else 's'}, +{merged.summary.added} −{merged.summary.removed}"
    where = f" and its checkout {merged.checkout}" if merged.checkout else ""
    others = describe_base_commits(merged.base_commits, merged.branch, base_branch, is_done=not is_dry_run)
    if is_dry_run:
        return f"{branch}{where} would be {action}: {changed}.{others} Nothing was changed."
    return f"{branch}{where}: {action}, {changed}, now at {merged.commit[:10]}.{others}"


def _tidy(config: Config, run_id: str, message: str) -> dict[str, Any]:
    """Take the worktree of a merged run away. That it cannot be is no reason for the merge to fail."""
    try:
        disposal = dispose_files(RunPlaces(config.data_dir.resolve(), run_id), (), at=utc_now())
    except (WorkspaceError, OSError) as error:
        disposal = Disposal((), (str(error),))
    removed = [{"kind": item.kind.value, "path": item.path, "bytes": item.size_bytes} for item in disposal.items]
    names = [item.kind.value for item in disposal.items if item.kind.value in ("worktree", "branch")]
    if names:
        message += f" Removed the run's {' and '.join(dict.fromkeys(names))}."
    for ref in disposal.rescue_refs:
        message += f" Files that no phase recorded are kept under {ref}."
    for reason in disposal.obstacles:
        message += f" Its worktree is kept: {reason.rstrip('.')}."
    return {"message": message, "removed": removed, "kept": list(disposal.obstacles)}


def _to_payload(merged: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the journal records of a merge; a folder can have many files, and names that are no text."""
    return {key: merged[key] for key in ("action", "branch", "commit", "folder", "host") if key in merged}
