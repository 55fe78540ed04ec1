"""The command runs rm: delete runs for good."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.terminal.answer_input import confirm
from holdfast.cli.terminal.arguments import JSON, STORE, find_run_id, is_interactive
from holdfast.cli.terminal.cleanup import DRY_RUN, MANY, UNMERGED, run_cleanup, show_cleanup
from holdfast.cli.terminal.output import EXIT_DONE, EXIT_FAILED, print_json, say
from holdfast.cli.terminal.store import name_configured_store, rows_of_deletion
from holdfast.errors import HoldfastError
from holdfast.persistence.flow_listings import find_flow_run

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
    store: STORE = None,
) -> None:
    """Delete runs for good: journal, rows, refs, worktree, report. Your own branches are not touched.

    Example: holdfast runs rm 3f2a --yes
    """
    full_ids = list(dict.fromkeys(find_run_id(run_id) for run_id in run_ids))
    if not yes and not dry_run and not _is_confirmed(full_ids):
        say("Nothing was deleted.")
        raise typer.Exit(EXIT_FAILED)
    if flows := [run_id for run_id in full_ids if find_flow_run(run_id)]:
        if len(flows) < len(full_ids):
            raise typer.BadParameter("Name flow runs or workflow runs, not both.", param_hint="RUN")
        raise typer.Exit(_remove_flows(flows, is_dry_run=dry_run, is_json=as_json))

    async def work(db: "Database", config: "Config", tell: "Tell") -> "Cleanup":
        from datetime import UTC, datetime

        from holdfast.engine.retention.cleanup import remove_runs

        options = {"can_lose_unmerged": unmerged, "is_dry_run": dry_run}
        return await remove_runs(db, config, full_ids, now=datetime.now(UTC), tell=tell, **options)

    done = run_cleanup(work, is_dry_run=dry_run)
    show_cleanup(done, is_json=as_json)
    raise typer.Exit(EXIT_DONE if set(full_ids) <= set(done.deleted_runs) else EXIT_FAILED)


def _remove_flows(run_ids: list[str], *, is_dry_run: bool, is_json: bool) -> int:
    import asyncio

    removed = [] if is_dry_run else asyncio.run(_delete_flows(run_ids))
    if is_json:
        print_json(removed)
    for item in removed if not is_json else ():
        error = item["error"]
        say(f"✕ {item['run_id']}: {error['code']}: {error['message']}" if error else f"✓ {item['run_id']} is deleted")
    return EXIT_FAILED if any(item["error"] for item in removed) else EXIT_DONE


def _is_confirmed(run_ids: list[str]) -> bool:
    if not is_interactive():
        raise typer.BadParameter("Deleting a run cannot be undone; say --yes to do it unasked.", param_hint="--yes")
    many = "this run" if len(run_ids) == 1 else f"these {len(run_ids)} runs"
    say("\n".join(f"  {run_id}" for run_id in run_ids[:MANY]))
    return confirm(f"Delete {many} for good?")


async def _delete_flows(run_ids: list[str]) -> list[dict[str, Any]]:
    """Delete flow runs that are over, each whole or not at all; an `error` says why one was not."""
    from holdfast.flows.answers import delete_in_journal
    from holdfast.runtime.stores import open_journal

    removed: list[dict[str, Any]] = []
    async with open_journal(name_configured_store()) as journal:
        for run_id in run_ids:
            try:
                await delete_in_journal(journal, run_id, rows=rows_of_deletion(journal, run_id))
                removed.append({"run_id": run_id, "error": None})
            except HoldfastError as error:
                removed.append({"run_id": run_id, "error": error.to_dict()})
    return removed
