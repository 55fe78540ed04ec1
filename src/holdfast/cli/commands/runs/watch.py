"""The command runs watch: a run in front of a person, whichever process drives it."""

from typing import TYPE_CHECKING

import typer

from holdfast.cli.terminal.arguments import RUN_ID, STORE, find_run_id
from holdfast.cli.terminal.output import exit_code, next_step, print_text
from holdfast.cli.terminal.store import name_configured_store, open_configured_store, undriven_notice
from holdfast.enums import RunStatus
from holdfast.persistence.flow_listings import find_flow_run
from holdfast.persistence.raw_sql import get_run, read_phase_keys
from holdfast.runtime.events import EventKind

if TYPE_CHECKING:
    from holdfast.runtime.records import Records


def watch_run(run_id: RUN_ID, store: STORE = None) -> None:
    """Watch a run until it ends or waits, whichever process drives it. The exit code says which.

    Example: holdfast runs watch 3f2a
    """
    import asyncio

    full_id = find_run_id(run_id)
    if find_flow_run(full_id):
        raise typer.Exit(exit_code(asyncio.run(_watch_flow(full_id))))
    state = asyncio.run(_watch(full_id))
    row = get_run(full_id)
    print_text(f"run {full_id[:8]} is {row['state']}")
    if following := next_step(full_id, row["state"], row["pause_reason"], row["final_report_path"]):
        print_text(following)
    raise typer.Exit(exit_code(state))


async def _watch_flow(run_id: str) -> str:
    """Print what a flow does, event by event, until it ends or waits for a person; return its status then."""
    from holdfast.cli.commands.runs.events import EventPrinter
    from holdfast.runtime.records import Records
    from holdfast.runtime.stores import open_journal

    printer = EventPrinter()
    async with open_journal(name_configured_store()) as journal, undriven_notice(run_id):
        head = await journal.read_head(run_id)
        records = Records()
        async for event in journal.follow(run_id):
            records.add(event)
            printer.print(event)
            is_over = event.is_terminal or event.kind == EventKind.RUN_PAUSED
            if is_over and event.seq >= head:
                break
    print_text(f"run {run_id} is {records.status}")
    if records.status == RunStatus.PAUSED:
        _print_questions(run_id, records)
    return str(records.status)


def _print_questions(run_id: str, records: "Records") -> None:
    """Say what a paused flow waits for, how that is answered, and how to watch on."""
    from holdfast.cli.terminal.flow_runs import print_question, read_flow

    children = [str(child.get("run_id")) for child in records.end.get("children", ())]
    for asking in [run_id, *children]:
        for question in read_flow(asking).questions:
            print_question(asking, question.key, question.about, question.show)
    print_text(f"\nThen watch on: holdfast runs watch {run_id}")


async def _watch(run_id: str) -> str:
    import asyncio

    from holdfast.cli.terminal.progress import can_draw, give_notice, progress_display

    store = open_configured_store()
    try:
        async with progress_display(store, run_id, phase_keys=read_phase_keys(run_id)) as view:

            def tell(reason: str) -> None:
                if reason or can_draw():  # a tree forgets what it has said; lines that were printed stay
                    give_notice(view, reason)

            async with undriven_notice(run_id, tell):
                while not view.is_still:  # noqa: ASYNC110 - the journal wakes the view; this only looks at it
                    await asyncio.sleep(0.1)
            return view.state
    finally:
        store.close()
