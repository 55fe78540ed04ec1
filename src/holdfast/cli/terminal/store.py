"""The journal of the configured store, for the commands that only read."""

import contextlib
from collections.abc import AsyncIterator, Callable, Collection
from typing import TYPE_CHECKING, Any

from holdfast.cli.terminal.output import plain, say
from holdfast.enums import PauseReason, RunStatus
from holdfast.errors import HoldfastError
from holdfast.persistence.raw_sql import find_driven, find_run, query

if TYPE_CHECKING:
    from holdfast.runtime.checkpoint.base import Statement
    from holdfast.runtime.events import Event
    from holdfast.runtime.journal import Journal

_LOOK_S = 2.0


def name_configured_store() -> str:
    """Return what opens the store of the configured database: a path or a URL."""
    from holdfast.config import load_config

    config = load_config()
    return config.database_url if config.database_path is None else str(config.database_path)


def rows_of_deletion(journal: "Journal", run_id: str) -> "list[Statement]":
    """Return what goes with a flow's run beside its journal: its positions, where a server has given it some."""
    from holdfast.config import load_config
    from holdfast.persistence.statements import forget_positions

    if load_config().database_path is not None:
        return []
    (found,) = journal.store.read_rows("SELECT to_regclass('feed') IS NOT NULL", {})
    return [forget_positions(run_id)] if found[0] else []


def open_configured_store() -> Any:
    """Open the store of the configured database; whoever opens it closes it."""
    from holdfast.runtime.stores import open_store

    return open_store(name_configured_store())


def read_events(run_id: str, since: int = 0) -> "list[Event]":
    """Return the events of a run with a higher number than `since`."""
    store = open_configured_store()
    try:
        events: list[Event] = store.list_events(run_id, since)
        return events
    finally:
        store.close()


def _say_reason(text: str) -> None:
    if text:
        say(text)


@contextlib.asynccontextmanager
async def undriven_notice(run_id: str, tell: Callable[[str], None] = _say_reason) -> AsyncIterator[None]:
    """While a run is followed, tell why nothing comes, and again when the reason is another; "" once it goes on."""
    import asyncio

    watching = asyncio.create_task(_tell_when_undriven(run_id, tell))
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _tell_when_undriven(run_id: str, tell: Callable[[str], None]) -> None:
    import asyncio

    last, before = "", None
    while True:
        with contextlib.suppress(HoldfastError):  # the database is away for a moment; whoever follows the run says so
            text = await asyncio.to_thread(_explain_silence, run_id)
            # One look alone may fall between a pause and the process that goes on.
            if text == before and text != last:
                last = text
                tell(text)
            before = text
        await asyncio.sleep(_LOOK_S)


def _explain_silence(run_id: str) -> str:
    """Say why nothing happens in a run; nothing while a process drives it, and of one that is over."""
    run = find_run(run_id)
    if run is None:
        return _explain_silent_flow(run_id)
    if RunStatus(run["state"]).is_terminal:
        return ""
    if run["state"] == RunStatus.PAUSED and not _is_to_go_on(run):
        from holdfast.presentation.status import find_pause

        return f"The run is paused: {find_pause(run['pause_reason']).sentence} Look: holdfast runs show {run_id[:8]}"
    return "" if find_driven([run_id]) else plain(_explain_stillness(run))


def _is_to_go_on(run: dict[str, Any]) -> bool:
    """Tell whether somebody has asked a paused run to go on, or answered its last question."""
    return run["wake"] is not None or (run["pause_reason"] == PauseReason.APPROVAL and not run["open_questions"])


def _explain_stillness(run: dict[str, Any]) -> str:
    """Say why nobody drives a run: among workers what `runs show` says of it, else how to go on with it."""
    from holdfast.presentation.status import RunFacts, describe_run, describe_wait

    if _is_alone() or run["state"] == RunStatus.PAUSED:
        return f"No process drives this run. Go on with it: holdfast resume {run['id'][:8]}"
    reason = describe_wait(run["waits_for"], run["due_at"]) or find_still_reasons([run["id"]]).get(run["id"])
    return describe_run(RunFacts(state=run["state"], waiting_for=reason, is_driven=False)).text


def _is_alone() -> bool:
    """Tell whether the database is a file of this machine, so that no worker takes runs from it."""
    from holdfast.config import load_config

    return load_config().database_path is not None


def _explain_silent_flow(run_id: str) -> str:
    from holdfast.persistence.flow_listings import find_flow_run

    row = find_flow_run(run_id)
    if row is None or RunStatus(row["state"]).is_terminal or row["is_driven"]:
        return ""
    if row["state"] == RunStatus.PAUSED:
        return f"The run is paused and waits for {row['waits_for']}. Look: holdfast runs show {run_id}"
    reason = find_wait_reason(run_id)
    return reason or "No process drives this run. Its flow is driven by: holdfast serve --flows MODULE"


def find_provider_waits(driven: Collection[str]) -> dict[str, str]:
    """Say of each of these runs, which processes drive, for which provider it waits and why, if it does."""
    from holdfast.runtime.run_fold.provider_wait import describe_waits, select_last_events

    rows = query(*select_last_events(driven)) if driven else []
    return describe_waits((row["run_id"], row["type"], row["body"]) for row in rows)


def find_still_reasons(run_ids: Collection[str]) -> dict[str, str]:
    """Say of those of these runs of workflows why that no process drives, though they are due; nothing on SQLite."""
    if not run_ids:
        return {}
    from holdfast.fleet.stillness import describe_all
    from holdfast.persistence.due.still_runs import query_still

    return describe_all(*query_still(run_ids))


def find_wait_reason(run_id: str) -> str | None:
    """Return why a run of a workflow or a flow stands still; `None` if it does not, and on SQLite."""
    import asyncio

    from holdfast.config import load_config

    config = load_config()
    return None if config.database_path is not None else asyncio.run(_explain(config.database_url, run_id))


async def _explain(url: str, run_id: str) -> str | None:
    import asyncio

    from holdfast.fleet.explanation import explain_flow, explain_run
    from holdfast.persistence.db import Database
    from holdfast.runtime.flow_rows import read_row

    db = Database(url)
    try:
        flow = await asyncio.to_thread(read_row, db.store, run_id)
        if flow is None:
            return await explain_run(db, run_id)
        owned = await asyncio.to_thread(db.store.find_owned, [run_id])
        return await explain_flow(db, flow, is_owned=run_id in owned)
    finally:
        await db.dispose()
