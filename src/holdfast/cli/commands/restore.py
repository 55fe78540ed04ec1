"""The command restore: the files of a run as they were before one of its calls."""

from typing import Annotated, Any

import typer

from holdfast.cli.terminal.arguments import JSON, RUN_ID, find_repository, find_run_id, get_user
from holdfast.cli.terminal.output import print_json, print_text, say, table
from holdfast.runtime.events import EventKind

_CHANGING = ("execute", "agent", "write_file", "edit_file", "delete")
_MOST = 50


def restore(
    run_id: RUN_ID,
    before: Annotated[
        int | None, typer.Option("--before", metavar="EVENT", help="The number of the call's event; see the list.")
    ] = None,
    as_json: JSON = False,
) -> None:
    """Put a run's files back as they were before a call, or list the calls that may have changed some.

    Nothing is lost: what lay there is kept under a git ref. A phase that is under way starts anew from the restored
    files. For a phase that was completed, fork the run instead.

    Example: holdfast restore 3f2a --before 41
    """
    import asyncio

    full_id = find_run_id(run_id)
    if before is None:
        _list_calls(full_id, is_json=as_json)
        return
    asyncio.run(_restore(full_id, before, is_json=as_json))


async def _restore(run_id: str, before: int, *, is_json: bool) -> None:
    from holdfast.cli.terminal.engine import open_engine

    async with open_engine(repo=find_repository(run_id)) as (engine, _db, _config):
        done = await engine.restore_files(run_id, before=before, by=get_user())
    if is_json:
        facts = {"run_id": done.run_id, "before": done.before, "tree": done.tree}
        print_json({**facts, "rescue_ref": done.rescue_ref, "reopened": list(done.reopened)})
    say(f"The files are those before event {done.before} (tree {done.tree[:12]}).")
    if done.rescue_ref:
        say(f"What lay there is kept: git show --stat {done.rescue_ref}")
    again = f" Starts anew: {', '.join(done.reopened)}." if done.reopened else ""
    say(f"{again} Go on: holdfast resume {run_id[:8]}".strip())


def _list_calls(run_id: str, *, is_json: bool) -> None:
    calls = read_calls(run_id)
    if is_json:
        print_json(calls)
        return
    if not calls:
        print_text("No call has changed files so far.")
        return
    print_text(table([[str(call["before"]), call["phase"], call["call"]] for call in calls]))
    print_text(f"\nRestore the files before one of them: holdfast restore {run_id[:8]} --before {calls[-1]['before']}")


def read_calls(run_id: str) -> list[dict[str, Any]]:
    """Return the last calls of a run that may have changed files, oldest first."""
    from holdfast.cli.terminal.store import open_configured_store
    from holdfast.runtime.event_text import describe_event

    store = open_configured_store()
    try:
        events = store.list_events(run_id)
    finally:
        store.close()
    calls = [
        {
            "before": event.seq,
            "phase": event.lane_id.partition("/")[0],
            "call": describe_event(event).phrase,
            "tree": event.payload.get("tree_before"),
        }
        for event in events
        if event.kind == EventKind.TOOL_STARTED and event.payload.get("tool") in _CHANGING
    ]
    return calls[-_MOST:]
