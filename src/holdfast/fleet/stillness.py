"""Why a run that should go on does not, from the database: it is the same sentence on every machine."""

from collections import Counter

from holdfast.flows import format_check
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
    if (newer := format_check.describe_newer(row)) is not None and not is_owned:
        return newer
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
    if flow:
        takers = [worker for worker in takers if flow in worker.flows]
    names = {worker.name for worker in takers}
    vain = [look for look in looks if look.worker in names]
    others = [worker for worker in takers if worker.name not in {look.worker for look in vain}]
    is_awaited = any(worker.driven < worker.slots for worker in others)
    if not vain:
        what = f"know flow {flow}" if flow else f"take queue {queue}"
        slots = sum(worker.slots for worker in takers)
        return None if is_awaited else f"All {slots} places of the workers that {what} are taken."
    failed = [look for look in vain if not look.missing]
    if is_awaited and not failed:
        return None
    parts = _describe_missing(vain)
    parts += [f"Worker {failed[-1].worker}: {failed[-1].reason}"] if failed else []
    parts += [_describe_full(len(others))] if others and not is_awaited else []
    return " ".join(parts)


def _describe_missing(looks: list[Look]) -> list[str]:
    """Say how many workers lack what, each thing in a sentence of its own: who lacks one may have the other."""
    lacking = Counter(look.missing for look in looks if look.missing)
    return [
        f"{_number(count)} workers looked; none has {what}." if count > 1 else f"One worker looked; it lacks {what}."
        for what, count in sorted(lacking.items())
    ]


def _describe_full(count: int) -> str:
    if count == 1:
        return "The other worker has no free place."
    return f"The other {_number(count).lower()} workers have no free place."


def _number(count: int) -> str:
    return _NUMBERS[count] if count < len(_NUMBERS) else str(count)
