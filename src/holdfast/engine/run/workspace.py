"""The workspace before the first phase of a drive: as the run left it, or made again from what was recorded.

Rule: a worktree that is made anew gets its files back before anyone works in it. A mark beside it says so until that
has happened, because a process can die in between.
"""

import asyncio
from pathlib import Path
from typing import Any

from holdfast.engine.disk_work import run_interruptible
from holdfast.engine.phase.command_shell import CommandKind
from holdfast.engine.phase.commands import IGNORED, TemplateCommand, check_success, run_command
from holdfast.engine.run.base_files import rows_of_workspace
from holdfast.engine.run.carrier import FilesTooLarge
from holdfast.engine.run.local_files import bring_files, check_folder
from holdfast.engine.run.reboot import drop_empty_objects, has_rebooted, note_boot, put_back, read_put_back
from holdfast.engine.scope import RunScope, to_workspace_error, utc_now
from holdfast.errors import StoreError, ToolOutcomeUnknown, WorkspaceError, WorkspaceTooLarge
from holdfast.persistence.statements import place_run, set_place
from holdfast.runtime.checkpoint.base import Statement
from holdfast.runtime.events import EventKind
from holdfast.runtime.outcomes.crashes import SETUP_LANE
from holdfast.runtime.records import StepState
from holdfast.runtime.step import SameCommit, Step, StepKinds, Stopped
from holdfast.workspace import (
    Workspace,
    copy_files,
    find_place,
    inherit_setup,
    open_workspace,
    prepare_workspace,
    record_setup,
    restore,
)
from holdfast.workspace.files import write_whole
from holdfast.workspace.refs import to_component
from holdfast.workspace.transfer.packs import has_trees
from holdfast.workspace.transfer.remotes import is_remote, open_mirror
from holdfast.workspace.worktree import discard_copy

_OTHERS_IGNORED = {"path": "whatever else git ignores", "reason": IGNORED}
"""What was ignored since the last snapshot, and beyond the first paths, only the place before knows by name."""
_PREPARED = StepKinds(completed=EventKind.WORKSPACE_PREPARED)


async def open_files(scope: RunScope) -> bool:
    """Make the workspace ready, with the files that were last recorded. Nothing is journaled.

    Returns whether it was made anew. Raises `WorkspaceError` and its kinds; the run is then as it was.
    """
    tree = scope.history.last_tree
    try:
        is_rebooted = await asyncio.to_thread(has_rebooted, scope)
        if is_rebooted:
            await asyncio.to_thread(drop_empty_objects, scope)
        is_here = not is_rebooted and await asyncio.to_thread(_is_here, scope)
        if (tree or scope.config.carries_files) and not is_here:
            await bring_files(scope.db, scope.config, scope.run, [tree] if tree else [])
        if not scope.history.prepared:
            await check_folder(scope.db, scope.config, scope.run)
        scope.workspace, is_new = await run_interruptible(lambda: _open(scope))
        scope.has_put_back = await asyncio.to_thread(read_put_back, scope) is not None
    except OSError as error:
        raise to_workspace_error(error) from error
    except WorkspaceError as error:
        if type(error) is WorkspaceError and tree and not await asyncio.to_thread(_has_tree, scope, tree):
            raise _files_lost(scope) from error
        raise
    return is_new


def _has_tree(scope: RunScope, tree: str) -> bool:
    return has_trees(scope.config.data_dir, scope.run_id, [tree])


def _files_lost(scope: RunScope) -> WorkspaceError:
    short = scope.run_id[:8]
    return WorkspaceError(
        f"The files of run {short} cannot be put back here: neither this machine nor the database has all of them.",
        hint=f"Resume it on the machine that drove it before. If that is gone: holdfast fork {short} PHASE starts a "
        "new run from the files that it had before a phase.",
    )


def check_files_of_place(scope: RunScope) -> None:
    """Raise `WorkspaceTooLarge`, with the fact `missing`, if the run can only go on where its files are, or were.

    Its agent was told that it has made them.
    """
    if not scope.history.needs_files_of_place:
        return
    short = scope.run_id[:8]
    if scope.history.place not in ("", find_place(scope.config.data_dir).data):
        where, hint = "is only on the machine that made it", "Resume it there. If that machine is gone: "
    elif not _find_worktree(scope).is_dir() or _find_mark(scope).exists():
        where, hint = "was only in a worktree that is gone", ""
    else:
        return
    raise WorkspaceTooLarge(
        f"What the last step of run {short} changed was too big to be stored, and {where}.",
        hint=f"{hint}holdfast restore {short} lists the calls, and --before EVENT lets the phase start again from the "
        "files before one of them.",
        paths=scope.history.files_of_place,
        missing="the files of its last step, which were too big to be stored",
    )


def _find_worktree(scope: RunScope) -> Path:
    return scope.config.data_dir / "worktrees" / to_component(scope.run_id)


def _find_mark(scope: RunScope) -> Path:
    """Find the file that is there while a worktree is made anew and does not have its files yet."""
    return scope.config.data_dir / "worktrees" / ".state" / to_component(scope.run_id) / "restoring"


def _is_here(scope: RunScope) -> bool:
    """Tell whether this place has the files as the run left them, and the repository that they belong to."""
    try:
        workspace = open_workspace(scope.config.data_dir, scope.run_id)
    except WorkspaceError:
        return False
    is_place = scope.history.place in ("", find_place(scope.config.data_dir).data)
    return is_place and workspace.worktree.is_dir() and workspace.repo.is_dir()


def _open(scope: RunScope) -> tuple[Workspace, bool]:
    data_dir, tree, origin = scope.config.data_dir, scope.history.last_tree, scope.run.forked_from
    mark = _find_mark(scope)
    is_elsewhere = scope.history.place not in ("", find_place(data_dir).data)
    if tree and (is_elsewhere or not _find_worktree(scope).is_dir()):
        mark.parent.mkdir(parents=True, exist_ok=True)
        # crash: whoever comes next restores as well, though the worktree looks complete by then.
        write_whole(mark, tree)
    url, allowed = scope.run.repo_path, scope.config.allowed_repositories
    workspace = prepare_workspace(
        open_mirror(url, scope.run.base_commit, data_dir, allowed=allowed) if is_remote(url) else Path(url),
        data_dir=data_dir,
        run_id=scope.run_id,
        base_branch=scope.run.base_branch,
        base_commit=scope.run.base_commit,
        forked_from=_find_origin(data_dir, origin) if origin else None,
    )
    if origin:
        inherit_setup(workspace, origin)
    is_new = workspace.is_rebuilt or mark.exists()
    is_lost = False
    if tree and has_rebooted(scope):
        is_lost = put_back(scope, workspace, tree)
    if is_new and tree:
        restore(workspace, tree, at=utc_now())
    if scope.history.prepared and (is_elsewhere or is_lost or (is_new and tree)):
        # Copies and the folders that set-up filled are in no tree: they are lost with the folder they were in.
        write_whole(mark.with_name("prepare-again"), "")
    mark.unlink(missing_ok=True)
    return workspace, is_new


def _find_origin(data_dir: Path, run_id: str) -> Workspace | None:
    """Find the workspace of the run that a fork came from; the fork has packs of its own where that never was."""
    try:
        return open_workspace(data_dir, run_id)
    except WorkspaceError:
        return None


async def prepare(scope: RunScope) -> None:
    """Copy files and run set-up, each once; again in a worktree that was made anew, and after a retry what failed."""
    await _record_move(scope)
    again = scope.place.state_dir / "prepare-again"
    round_no = max(scope.history.prepared, 1)
    if again.exists() or _has_failed_before_retry(scope, round_no):
        await _give_up_commands(scope, _lane(round_no))
        round_no = scope.history.prepared + 1
    await _record(scope, round_no)
    # crash: the record stands and the file may still be there; then one more round is begun, which does no harm.
    again.unlink(missing_ok=True)
    lane_id = _lane(round_no)
    if scope.template.copy_files:
        step = Step(f"{lane_id}/copy", lane_id)
        await scope.log.step(step, lambda: scope.on_disk(lambda: _copy(scope)))
    for number, argv in enumerate(scope.template.setup, 1):
        command = TemplateCommand(CommandKind.SETUP, lane_id, f"command{number}", argv)
        check_success(scope, command, await run_command(scope, command), f"The set-up command {command.line!r}")
    if scope.template.setup and not _is_recorded_too_late(scope, round_no):
        await _record_setup(scope, lane_id)


def _is_recorded_too_late(scope: RunScope, round_no: int) -> bool:
    """Return whether phases have worked since this set-up, which an earlier version did without recording its files."""
    prepared = scope.log.records.by_key.get(("step", _workspace_key(round_no)))
    is_recorded = ("step", f"{_lane(round_no)}/files") in scope.log.records.by_key
    return prepared is not None and not is_recorded and scope.history.started_at > prepared.last_seq


async def _record_setup(scope: RunScope, lane_id: str) -> None:
    """Keep what set-up made apart from what the phases will make, so that the result can leave it out."""
    # No phase has worked since that tree was recorded: what differs from it is set-up's.
    before = scope.history.last_tree or scope.place.base_commit

    def record() -> dict[str, Any]:
        return dict(record_setup(scope.place, before=before, at=utc_now()))

    await scope.log.step(Step(f"{lane_id}/files", lane_id), lambda: scope.on_disk(record))


def _lane(round_no: int) -> str:
    return SETUP_LANE if round_no == 1 else f"{SETUP_LANE}#{round_no}"


def _workspace_key(round_no: int) -> str:
    return "workspace" if round_no == 1 else f"workspace#{round_no}"


def _has_failed_before_retry(scope: RunScope, round_no: int) -> bool:
    for number in range(1, len(scope.template.setup) + 1):
        record = scope.log.records.by_key.get(("step", f"{_lane(round_no)}/command{number}"))
        if record is None or record.last_seq > scope.history.retried_at:
            continue
        if record.state is StepState.FAILED or (record.result or {}).get("exit_code", 0) != 0:
            return True
    return False


async def _give_up_commands(scope: RunScope, lane_id: str) -> None:
    """Say of set-up commands in flight where the run was before that they are run again here, with all others."""
    for key in sorted(key for key in scope.history.commands if key.startswith(f"{lane_id}/")):
        error = {
            "code": ToolOutcomeUnknown.code,
            "message": "What became of it is not known; the set-up is done again.",
        }
        await scope.log.append(
            scope.log.event(EventKind.TOOL_UNKNOWN, lane_id, key=key, resolution="rerun"),
            scope.log.event(EventKind.TOOL_ERROR, lane_id, key=key, attempt=1, error=error),
        )
        scope.history.commands.discard(key)


async def _record_move(scope: RunScope) -> None:
    """Record that the files are here now, and what was left behind where they were; or that they were put back."""
    place = find_place(scope.config.data_dir).data
    if scope.history.place in ("", place):
        await _record_reboot(scope, place)
        return
    moved = scope.log.event(
        EventKind.WORKSPACE_MOVED,
        place=place,
        before=scope.history.place,
        tree=scope.history.last_tree,
        left_behind=[*scope.history.left_out, _OTHERS_IGNORED],
    )
    # crash: the files are here and nothing says so; the next drive in this place restores them again and says it.
    await scope.log.append(moved, rows=[set_place(scope.run_id, place)])
    scope.history.place = place
    await asyncio.to_thread(note_boot, scope)


async def _record_reboot(scope: RunScope, place: str) -> None:
    """Record that files were put back after the machine had started again: a command in flight worked on others."""
    replaced = await asyncio.to_thread(read_put_back, scope)
    if replaced is not None:
        facts: dict[str, Any] = {"place": place, "before": place, "tree": scope.history.last_tree, "left_behind": []}
        moved = scope.log.event(EventKind.WORKSPACE_MOVED, **facts, rebooted=True, **replaced)
        # crash: the boot is not noted; the next drive puts the files back again, finds no difference and says it.
        await scope.log.append(moved)
        scope.log.records.leave_places()
    await asyncio.to_thread(note_boot, scope)


async def _record(scope: RunScope, round_no: int) -> None:
    workspace, place = scope.place, find_place(scope.config.data_dir).data
    facts = {
        "root": str(workspace.root),
        "branch": workspace.branch,
        "base_commit": workspace.base_commit,
        "place": place,
    }
    key = _workspace_key(round_no)
    rows: list[Statement] = []
    if ("step", key) not in scope.log.records.by_key:
        rows = await _make_base_rows(scope)
        rows.append(place_run(scope.run_id, worktree_root=str(workspace.root), base_commit=workspace.base_commit))
        rows.append(set_place(scope.run_id, place))
    step = Step(key, _lane(round_no), kinds=_PREPARED, with_result=lambda _result: SameCommit(rows=rows))
    await scope.log.step(step, lambda: facts)
    scope.history.place = scope.history.place or place
    scope.history.prepared = max(round_no, scope.history.prepared)


async def _make_base_rows(scope: RunScope) -> list[Statement]:
    """Return the rows of what the run starts from. Raises `FilesTooLarge`; a copy of a folder is then taken back."""
    try:
        return await rows_of_workspace(scope.db, scope.journal, scope.config, scope.place)
    except WorkspaceTooLarge as error:
        if scope.place.is_private and scope.run.forked_from is None and scope.history.prepared == 0:
            await scope.on_disk(lambda: discard_copy(scope.place))
        raise FilesTooLarge(error) from error
    except (WorkspaceError, StoreError) as error:  # no failure of the run: it goes on once the cause is gone
        raise Stopped(error) from error


def _copy(scope: RunScope) -> dict[str, Any]:
    report = copy_files(scope.place, scope.template.copy_files)
    return {"copied": list(report.copied), "skipped": [list(item) for item in report.skipped]}
