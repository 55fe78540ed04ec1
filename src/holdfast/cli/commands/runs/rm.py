"""The command runs rm: delete runs for good."""

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.terminal.answer_input import confirm
from holdfast.cli.terminal.arguments import JSON, find_run_id, is_interactive
from holdfast.cli.terminal.cleanup import DRY_RUN, MANY, UNMERGED, run_cleanup, show_cleanup
from holdfast.cli.terminal.output import EXIT_DONE, EXIT_FAILED, say

if TYPE_CHECKING:
    from holdfast.config import Config
    from holdfast.engine.retention.cleanup import Cleanup, Tell
    from holdfast.persistence.db import Database


def remove(
    run_ids: Annotated[list[str], typer.Argument(metavar="RUN...", help="Ids of runs, or the beginnings of them.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    dry_run: DRY_RUN = False,
    unmerged: UNMERGED = False,
    as_json: JSON = False,
) -> None:
    """Delete runs for good: journal, rows, refs, worktree, report. Your own branches are not touched.

    Example: holdfast runs rm 3f2a --yes
    """
    full_ids = list(dict.fromkeys(find_run_id(run_id) for run_id in run_ids))
    if not yes and not dry_run and not _is_confirmed(full_ids):
        say("Nothing was deleted.")
        raise typer.Exit(EXIT_FAILED)

    async def work(db: "Database", config: "Config", tell: "Tell") -> "Cleanup":
        from datetime import UTC, datetime

        from holdfast.engine.retention.cleanup import remove_runs

        options = {"can_lose_unmerged": unmerged, "is_dry_run": dry_run}
        return await remove_runs(db, config, full_ids, now=datetime.now(UTC), tell=tell, **options)

    done = run_cleanup(work, is_dry_run=dry_run)
    show_cleanup(done, is_json=as_json)
    raise typer.Exit(EXIT_DONE if set(full_ids) <= set(done.deleted_runs) else EXIT_FAILED)


def _is_confirmed(run_ids: list[str]) -> bool:
    if not is_interactive():
        raise typer.BadParameter("Deleting a run cannot be undone; say --yes to do it unasked.", param_hint="--yes")
    many = "this run" if len(run_ids) == 1 else f"these {len(run_ids)} runs"
    say("\n".join(f"  {run_id}" for run_id in run_ids[:MANY]))
    return confirm(f"Delete {many} for good?")
