"""The sentence that says why nobody drives a run: the same on every machine, for one run and for a whole list."""

from collections import Counter
from collections.abc import Iterable, Sequence

from holdfast.persistence.due.still_runs import ListedWorker, Look, StillRun, describe_newer, is_newer

_NUMBERS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve")


def describe_all(workers: Iterable[ListedWorker], runs: Iterable[StillRun]) -> dict[str, str]:
    """Say by run why nobody drives it; of a run that somebody is about to drive it says nothing."""
    takers = list_takers(workers)
    found = {
        run.run_id: describe_newer(run.format) if is_newer(run.format) else describe(takers, run.looks, queue=run.queue)
        for run in runs
    }
    return {run_id: sentence for run_id, sentence in found.items() if sentence is not None}


def list_takers(workers: Iterable[ListedWorker]) -> list[ListedWorker]:
    """List the workers that take runs: who is silent or draining takes none."""
    return [worker for worker in workers if worker.is_alive and not worker.is_draining]


def describe(workers: Sequence[ListedWorker], looks: Sequence[Look], *, queue: str, flow: str = "") -> str | None:
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


def _describe_missing(looks: Sequence[Look]) -> list[str]:
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
