"""The worktree after its machine has started again: what was written before may be lost, though it looks as it was.

Rule: a place notes beside the worktree in which boot its files were last known to be as the journal says. In another
one the recorded files are put back, before anyone builds on what lies there; what lay there is kept by a rescue ref.
"""

import json
from pathlib import Path
from typing import Any

from holdfast.engine.scope import RunScope, utc_now
from holdfast.errors import WorkspaceError
from holdfast.workspace import Workspace, find_place, open_workspace, restore, write_tree
from holdfast.workspace.files import read_text_if_there, write_whole
from holdfast.workspace.refs import to_component
from holdfast.workspace.transfer.quarantine import has_whole, remove_empty_objects

_BOOT = "boot"
_PUT_BACK = "put-back"


def has_rebooted(scope: RunScope) -> bool:
    """Tell whether the machine has started again since the run's files in this place were last looked at.

    Not where files that were never stored would go, and not where nothing was noted, as by an earlier version.
    """
    here = find_place(scope.config.data_dir)
    last_boot = read_text_if_there(_state_dir(scope) / _BOOT)
    is_here = scope.history.place in ("", here.data) and not scope.history.needs_files_of_place
    return is_here and bool(scope.history.last_tree) and last_boot not in (None, "", here.boot)


def drop_empty_objects(scope: RunScope) -> None:
    """Remove the objects that a power cut has left empty, so that those of the database can take their place."""
    try:
        remove_empty_objects(open_workspace(scope.config.data_dir, scope.run_id).repo)
    except WorkspaceError:
        return  # there is nothing here, and all of it is brought


def put_back(scope: RunScope, workspace: Workspace, tree: str) -> bool:
    """Let the worktree hold the recorded files again; return whether other ones lay there.

    With a command in flight the files are put back whatever lies there: it is dead, and what its own folder says of it
    may be as old as the files. Without the objects of the tree everything stays as it is.
    """
    mark = workspace.state_dir / _PUT_BACK
    if not has_whole(workspace.repo, [tree]):
        return False
    (workspace.state_dir / "index").unlink(missing_ok=True)  # it vouches for files by their times
    is_different = write_tree(workspace).tree_id != tree
    if not is_different and not scope.history.commands and not scope.history.agent_commands:
        return False
    if not mark.exists():
        # crash: from here on the next drive says that the files were put back, whether it finds a difference or not.
        write_whole(mark, "{}")
    restored = restore(workspace, tree, at=utc_now())
    if restored.tree_before != tree:
        write_whole(mark, json.dumps({"tree_before": restored.tree_before, "rescue_ref": restored.rescue_ref}))
    return is_different


def read_put_back(scope: RunScope) -> dict[str, Any] | None:
    """Return what was replaced when files were put back, which no event says yet; `None` if none were."""
    text = read_text_if_there(_state_dir(scope) / _PUT_BACK)
    if text is None:
        return None
    facts: dict[str, Any] = json.loads(text)
    return facts


def note_boot(scope: RunScope) -> None:
    """Note that the files are as the journal says, in this boot; and that putting them back is written down."""
    folder, boot = _state_dir(scope), find_place(scope.config.data_dir).boot
    (folder / _PUT_BACK).unlink(missing_ok=True)
    if read_text_if_there(folder / _BOOT) != boot:
        write_whole(folder / _BOOT, boot)


def _state_dir(scope: RunScope) -> Path:
    return scope.config.data_dir / "worktrees" / ".state" / to_component(scope.run_id)
