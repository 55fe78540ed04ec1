"""Why a run that should go on does not, from the database: it is the same sentence on every machine."""

from holdfast.persistence.db import Database
from holdfast.persistence.fleet import ListedWorker, Look, list_workers, read_looks
from holdfast.persistence.listings import describe_newer, find_newer_format, list_due
from holdfast.runtime.flow_rows import FlowRow

_NUMBERS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve")


async def explain_run(db: Database, run_id: str) -> str | None:
    """Tell why a workflow's run is not driven; `None` if it is, if it is not due, or if somebody is about to."""
    newer = await find_newer_format(db, run_id)
    if newer is not None:
        return describe_newer(newer)
    due = await list_due(db, of=[run_id]) if db.path is None else []
    return await explain_job(db, run_id, queue=due[0].queue) if due else None


async def explain_flow(db: Database, row: FlowRow, *, is_owned: bool) -> str | None:
    """Tell why a flow's run is not driven; `None` as for `explain_run`."""
    is_ripe = (row.is_due or row.is_driven) and row.parent_run_id is None
    if db.path is not None or is_owned or not is_ripe:
        return None
    return await explain_job(db, row.run_id, queue=row.queue, flow=row.flow)


async def explain_job(db: Database, run_id: str, *, queue: str, flow: str = "") -> str | None:
    """Tell why a run that is due is not driven, by the workers that there are and what they found."""
    workers = [worker for worker in await list_workers(db) if worker.is_alive and not worker.is_draining]
    return describe(workers, await read_looks(db, run_id), queue=queue, flow=flow)


def describe(workers: list[ListedWorker], looks: list[Look], *, queue: str, flow: str = "") -> str | None:
    """Say why nobody drives a run that is due, given who is alive and who looked at it in vain."""
    if not workers:
        return "No worker is taking runs. Start one with `holdfast worker`."
    takers = [worker for worker in workers if queue in worker.queues]
    if not takers:
        return f"No worker takes queue {queue}."
    if flow and not any(flow in worker.flows for worker in takers):
        return f"No worker knows flow {flow}."
    names = {worker.name for worker in takers if not flow or flow in worker.flows}
    vain = [look for look in looks if look.worker in names]
    missing = sorted({look.missing for look in vain if look.missing})
    if missing and len(vain) == len(names):
        looked = f"{_number(len(vain))} {'workers' if len(vain) > 1 else 'worker'} looked"
        return f"{looked}; {'none' if len(vain) > 1 else 'it'} {'has' if len(vain) > 1 else 'lacks'} {_list(missing)}."
    others = [look for look in vain if not look.missing]
    if others:
        return f"Worker {others[-1].worker}: {others[-1].reason}"
    slots = sum(worker.slots for worker in takers)
    if all(worker.driven >= worker.slots for worker in takers):
        return f"All {slots} places of the workers that take queue {queue} are taken."
    return None


def _number(count: int) -> str:
    return _NUMBERS[count] if count < len(_NUMBERS) else str(count)


def _list(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
