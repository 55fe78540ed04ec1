"""Why a run that should go on does not, from the database: it is the same sentence on every machine."""

from collections.abc import Collection

from holdfast.fleet.stillness import describe, describe_all, list_takers
from holdfast.flows import format_check
from holdfast.persistence.db import Database
from holdfast.persistence.due.still_runs import describe_newer
from holdfast.persistence.fleet import list_workers, read_looks, read_still
from holdfast.persistence.listings import find_newer_format, list_due
from holdfast.runtime.flow_rows import FlowRow


async def explain_run(db: Database, run_id: str) -> str | None:
    """Tell why a workflow's run is not driven; `None` if it is, if it is not due, or if somebody is about to."""
    newer = await find_newer_format(db, run_id)
    if newer is not None:
        return describe_newer(newer)
    due = await list_due(db, of=[run_id]) if db.path is None else []
    return await explain_job(db, run_id, queue=due[0].queue) if due else None


async def explain_runs(db: Database, run_ids: Collection[str]) -> dict[str, str]:
    """Tell of those of these workflows' runs that stand still why, in two queries for all.

    Runs that wait for their time or a place are not to be among them: their rows say so.
    """
    still = await read_still(db, run_ids)
    return describe_all(await list_workers(db), still) if still else {}


async def explain_flow(db: Database, row: FlowRow, *, is_owned: bool) -> str | None:
    """Tell why a flow's run is not driven; `None` as for `explain_run`."""
    if (newer := format_check.describe_newer(row)) is not None and not is_owned:
        return newer
    is_ripe = (row.is_due or row.is_driven) and row.parent_run_id is None
    if db.path is not None or is_owned or not is_ripe:
        return None
    return await explain_job(db, row.run_id, queue=row.queue, flow=row.flow)


async def explain_job(db: Database, run_id: str, *, queue: str, flow: str = "") -> str | None:
    """Tell why a run that is due is not driven, by the workers that there are and what they found."""
    return describe(list_takers(await list_workers(db)), await read_looks(db, run_id), queue=queue, flow=flow)
