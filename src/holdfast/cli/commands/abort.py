"""The command abort: end a run for good, or several.

What it made stays: journal, files and report. Unlike a paused run it cannot be resumed.
"""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from holdfast.cli.commands.pause import stop_run
from holdfast.cli.terminal.answer_input import confirm
from holdfast.cli.terminal.arguments import JSON, STORE, find_run_id, get_user, is_interactive
from holdfast.cli.terminal.completion import complete_runs
from holdfast.cli.terminal.output import EXIT_DONE, EXIT_FAILED, plain, print_json, print_text, say
from holdfast.enums import PauseReason, RunStatus
from holdfast.errors import HoldfastError
from holdfast.persistence.flow_listings import find_flow_run
from holdfast.persistence.raw_sql import read_open_runs

_CONVERSATION = "conversation"
_MOST_NAMED = 20


def abort(
    run_ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN]...", help="Ids of runs, or the beginnings.", autocompletion=complete_runs),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="The reason; the report names it.")] = "",
    conversations: Annotated[
        bool, typer.Option("--conversations", help="End every conversation that waits for what you say next.")
    ] = False,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="TIME", help="With --conversations: unused for so long: 12h, 7d."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --conversations: do not ask.")] = False,
    as_json: JSON = False,
    store: STORE = None,
) -> None:
    """End a run for good, or several. What it made stays; holdfast gc removes the worktree.

    A model call in flight is given up, and its commands are ended.

    Example: holdfast abort 3f2a --reason "wrong repository"
    """
    import asyncio

    if older_than is not None and not conversations:
        raise typer.BadParameter("It is about --conversations.", param_hint="--older-than")
    if bool(run_ids) == conversations:
        raise typer.BadParameter("Name the runs, or say --conversations.", param_hint="RUN")
    if run_ids and len(run_ids) == 1:
        if find_flow_run(full_id := find_run_id(run_ids[0])):
            _cancel_flow(full_id, reason, is_json=as_json)
            return
        stop_run(run_ids[0], "abort", RunStatus.CANCELLED, is_json=as_json, reason=reason)
    if run_ids:
        chosen = list(dict.fromkeys(find_run_id(run_id) for run_id in run_ids))
    else:
        chosen = _choose_conversations(older_than)
        if chosen and not yes and not _is_confirmed(len(chosen)):
            say("Nothing was ended.")
            raise typer.Exit(EXIT_FAILED)
    of_flows = [run_id for run_id in chosen if find_flow_run(run_id)]
    others = [run_id for run_id in chosen if run_id not in of_flows]
    ended = asyncio.run(_cancel_flows(of_flows, reason)) if of_flows else []
    ended += asyncio.run(_abort_all(others, reason)) if others else []
    if as_json:
        print_json(ended)
    else:
        _show(ended)
    raise typer.Exit(EXIT_FAILED if any(item["error"] for item in ended) else EXIT_DONE)


def _cancel_flow(run_id: str, reason: str, *, is_json: bool) -> None:
    """Cancel a flow run: at once if nobody drives it, else its owner ends it as soon as it sees the request."""
    import asyncio

    from holdfast.cli.terminal.store import name_configured_store
    from holdfast.flows.answers import cancel_flow

    asyncio.run(cancel_flow(run_id, store=name_configured_store(), reason=reason, by=get_user()))
    row = find_flow_run(run_id) or {"state": None}
    if is_json:
        print_json({"run_id": run_id, "state": row["state"], "error": None})
    else:
        is_ended = row["state"] == RunStatus.CANCELLED
        print_text(f"run {run_id} is cancelled" if is_ended else f"run {run_id} ends as soon as its owner sees it")


def _choose_conversations(older_than: str | None) -> list[str]:
    """Return the conversations that have answered all, and were not used for so long."""
    from holdfast.persistence.statements import to_time_text
    from holdfast.quantities import parse_duration

    until = ""
    if older_than is not None:
        try:
            until = to_time_text(datetime.now(UTC) - timedelta(seconds=parse_duration(older_than)))
        except ValueError as error:
            raise typer.BadParameter(f"{older_than!r} should be {error}.", param_hint="--older-than") from error
    rows = [row for row in read_open_runs(workflow=_CONVERSATION) if row["pause_reason"] == PauseReason.MESSAGE]
    rows = [row for row in rows if not until or row["updated_at"] <= until]
    for row in rows[:_MOST_NAMED]:
        say(f"  {row['id'][:8]}  {plain(str(row['title'] or ''))}")
    return [str(row["id"]) for row in rows]


def _is_confirmed(count: int) -> bool:
    if not is_interactive():
        raise typer.BadParameter("It cannot be undone; say --yes to do it unasked.", param_hint="--yes")
    return confirm(f"End {'this conversation' if count == 1 else f'these {count} conversations'} for good?")


async def _abort_all(run_ids: list[str], reason: str) -> list[dict[str, Any]]:
    """End each of the runs; one that cannot be ended does not keep the others from it."""
    from holdfast.cli.terminal.engine import open_engine

    ended: list[dict[str, Any]] = []
    async with open_engine() as (engine, _db, _config):
        for run_id in run_ids:
            try:
                result = await engine.abort(run_id, reason, by=get_user())
                ended.append({"run_id": run_id, "state": result.state.value, "error": None})
            except HoldfastError as error:
                ended.append({"run_id": run_id, "state": None, "error": error.to_dict()})
    return ended


async def _cancel_flows(run_ids: list[str], reason: str) -> list[dict[str, Any]]:
    from holdfast.cli.terminal.store import name_configured_store
    from holdfast.flows.answers import cancel_in_journal
    from holdfast.runtime.stores import open_journal

    ended: list[dict[str, Any]] = []
    async with open_journal(name_configured_store()) as journal:
        for run_id in run_ids:
            try:
                is_over = await cancel_in_journal(journal, run_id, reason=reason, by=get_user())
                state = RunStatus.CANCELLED if is_over else RunStatus.RUNNING
                ended.append({"run_id": run_id, "state": state.value, "error": None})
            except HoldfastError as error:
                ended.append({"run_id": run_id, "state": None, "error": error.to_dict()})
    return ended


def _show(ended: list[dict[str, Any]]) -> None:
    for item in ended:
        if item["error"]:
            say(f"✕ {item['run_id'][:8]}: {item['error']['code']}: {item['error']['message']}")
    count = sum(1 for item in ended if not item["error"])
    print_text(f"{count} ended. Remove their worktrees: holdfast gc" if count else "Nothing to end.")
