"""Why nobody drives a run that should go on, in the words that the pages have too: what the workers found."""

import asyncio


def find_wait_reason(run_id: str) -> str | None:
    """Return why a run of a workflow or a flow stands still; `None` if it does not, and on SQLite."""
    from holdfast.config import load_config

    config = load_config()
    return None if config.database_path is not None else asyncio.run(_explain(config.database_url, run_id))


async def _explain(url: str, run_id: str) -> str | None:
    from holdfast.fleet.stillness import explain_flow, explain_run
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
