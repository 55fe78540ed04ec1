"""Claims of runs, and their releases, in front of a store: those that are asked for together are made together.

Rule: the event loop waits for nothing here. What cannot be done at once is done in a thread, and a run whose owner was
killed a moment ago keeps no other run waiting.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from holdfast.errors import RunBusy, StoreBusy
from holdfast.runtime.checkpoint.base import Claim, JournalStore, OwnerEnding
from holdfast.runtime.coalescer import Coalescer

_T = TypeVar("_T")
_WAIT_S = 30.0


class ClaimBatches:
    """Claims and releases runs of one store from one event loop."""

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self._requests: set[str] = set()
        self._releasing = Coalescer(self._release_all)
        self._claiming = Coalescer(self._claim_all, self._releasing)
        self._claiming_patiently = Coalescer(self._claim_patiently, self._releasing)

    async def claim(self, run_id: str) -> Claim:
        """Become the owner of a run. Raises `RunBusy` if a live owner has it."""
        if run_id in self._requests:
            raise RunBusy(f"Run {run_id!r} is being driven in this process.", run_id=run_id)
        self._requests.add(run_id)
        try:
            return await self._claiming(run_id)
        except OwnerEnding:
            return await self._claiming_patiently(run_id)
        finally:
            self._requests.discard(run_id)

    async def release(self, claim: Claim) -> None:
        await self._releasing(claim)

    async def settle(self) -> None:
        """Wait until no claim is under way."""
        await self._claiming.settle()
        await self._claiming_patiently.settle()

    async def _claim_all(self, run_ids: list[str]) -> Sequence[Claim | BaseException]:
        return await call_store(self._store, lambda wait_s: self._store.claim_many(run_ids, wait_s=wait_s))

    async def _claim_patiently(self, run_ids: list[str]) -> Sequence[Claim | BaseException]:
        return await asyncio.to_thread(self._store.claim_many, run_ids, wait_s=_WAIT_S)

    async def _release_all(self, claims: list[Claim]) -> Sequence[None]:
        await call_store(self._store, lambda _wait_s: self._store.release_many(claims))
        return [None] * len(claims)


async def call_store(store: JournalStore, work: Callable[[float], _T]) -> _T:
    """Do a short piece of a store's work on the loop if that needs no waiting, else in a thread."""
    if store.is_local:
        with contextlib.suppress(StoreBusy):
            return work(0)
    return await asyncio.to_thread(work, _WAIT_S)
