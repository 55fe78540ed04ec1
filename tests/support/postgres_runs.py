"""Runs whose appends go over the line, written to and read."""

import asyncio
from typing import Any

from tests.support.progress_limit import until
from tests.support.stores import progress, seqs

from holdfast.runtime.checkpoint import PostgresCheckpointer
from holdfast.runtime.checkpoint.base import Claim
from holdfast.runtime.events import Event
from holdfast.runtime.journal import Journal


async def own(journal: Journal, *run_ids: str) -> dict[str, Claim]:
    """Claim runs whose next appends go over the line: it is open, and the heads are known."""
    claims = {run_id: await journal.claim(run_id) for run_id in run_ids}
    await asyncio.gather(*(append(journal, claim, "first") for claim in claims.values()))
    await until(lambda: journal._sender.pipeline_route.pipeline)
    return claims


async def append(journal: Journal, claim: Claim, name: object, **options: Any) -> Event:
    (stored,) = await journal.append(claim.run_id, [progress(claim.run_id, name=name)], claim=claim, **options)
    return stored


def names(store: PostgresCheckpointer, run_id: str = "r") -> list[object]:
    assert seqs(store, run_id) == list(range(1, len(seqs(store, run_id)) + 1))
    return [event.payload["name"] for event in store.list_events(run_id)]
