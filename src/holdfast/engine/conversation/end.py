"""The end of a conversation that is no longer needed: all is answered, and nothing was changed.

Rule: nobody's work ends here. With a changed file, a message without an answer or an open question it stays as it is.
"""

import asyncio

from holdfast.concurrency import finish_then_cancel
from holdfast.engine.conversation.journal import Conversation, is_conversation
from holdfast.engine.merge_preview import preview_stored
from holdfast.engine.run.load import LoadedRun
from holdfast.engine.run.stop import Completed, finish
from holdfast.engine.run_owner import RunOwner
from holdfast.engine.scope import utc_now
from holdfast.enums import PauseReason
from holdfast.errors import WorkspaceError
from holdfast.workspace.cleanup.disposal import dispose_files
from holdfast.workspace.cleanup.leftovers import RunPlaces


async def end_unchanged(owner: RunOwner, run_id: str) -> bool:
    """Complete a conversation that has changed nothing, and take its worktree and branch away; return whether it did.

    Raises as `resume` does, and `RunBusy` while someone drives it.
    """
    async with owner.owning(run_id) as (journal, claim):
        loaded = await owner.load(run_id)
        events = await journal.read(run_id)
        if not _is_answered(loaded, Conversation.of(events)) or await asyncio.to_thread(_has_changes, owner, loaded):
            return False
        # crash: before it the conversation waits as it did; after it a clean-up removes the worktree.
        await finish(owner.scope(journal, claim, loaded, events), Completed())
        if not owner.config.keep_worktrees:
            await finish_then_cancel(asyncio.to_thread(_tidy, owner, run_id))
    return True


def _is_answered(loaded: LoadedRun, conversation: Conversation) -> bool:
    """Return whether it waits for a message and has answered every one so far."""
    is_at_rest = loaded.stored.run.pause_reason == PauseReason.MESSAGE and not conversation.waiting
    return is_conversation(loaded.template) and is_at_rest and not any(turn.error for turn in conversation.turns)


def _has_changes(owner: RunOwner, loaded: LoadedRun) -> bool:
    return bool(preview_stored(owner.config, loaded.stored, loaded.template).files)


def _tidy(owner: RunOwner, run_id: str) -> None:
    """Remove what can be made again. That it cannot be is no reason to fail; the next clean-up tries it again."""
    try:
        dispose_files(RunPlaces(owner.config.data_dir.resolve(), run_id), (), at=utc_now())
    except (WorkspaceError, OSError):
        return
