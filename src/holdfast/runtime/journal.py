"""The asynchronous journal in front of a store: group commit, ownership, live readers.

Rule: `append` returns after COMMIT. Appends of all runs of the process share transactions: what is asked for in one
turn of the event loop, or while the last commit is still running, is written together.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TypeVar

from holdfast.errors import (
    HoldfastError,
    LeaseLost,
    RunIdInvalid,
    StoreBusy,
    StoreUnavailable,
    StoreUnreadable,
)
from holdfast.runtime.batch_sender import BatchSender, Waiting
from holdfast.runtime.checkpoint.base import Append, AppendResult, Claim, JournalStore, Leases, Statement, prepare
from holdfast.runtime.checkpoint.claim_batches import ClaimBatches, call_store
from holdfast.runtime.coalescer import Coalescer
from holdfast.runtime.events import Event
from holdfast.runtime.state import RunState
from holdfast.runtime.threads import Outcome, Watcher

_T = TypeVar("_T")
CommitListener = Callable[[Sequence[Append], Sequence[AppendResult], float], None]
"""Called on the loop after each commit: the appends, what became of each, and how many seconds it took."""
_SHORT_TAIL = 200  # events; read faster on the loop than a thread can be woken
_HELD_LOOK_S = 0.05


class Journal:
    """Appends, reads and follows the journals of one store from one event loop."""

    def __init__(self, store: JournalStore) -> None:
        self.store = store
        self.writers = 0
        """How many lanes may append at the same time; up to one, a commit is made on the spot."""
        self._loop = asyncio.get_running_loop()
        self._queue: list[Waiting] = []
        self._sender = BatchSender(store, self._loop, self._finish_sent)
        self._is_flush_due = False
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._claims: dict[str, Claim] = {}
        self._claim_batches = ClaimBatches(store)
        self._reading_heads = Coalescer(self._read_heads)
        self.heads: dict[str, int] = {}
        """The last numbers of runs that this journal has heard of."""
        self._listeners: dict[str, set[Callable[[int], None]]] = {}
        self._commit_listeners: list[CommitListener] = []
        self._change_listeners: list[Callable[[], None]] = []
        self._watcher: Watcher | None = None
        self._lost: set[Claim] = set()
        self._loss_listeners: dict[Claim, Callable[[], None]] = {}
        self._leases: Leases | None = getattr(store, "leases", None)
        self.has_leases = self._leases is not None
        self.owner_patience_s: float = getattr(store, "owner_patience_s", 120.0)
        if self._leases is not None:
            self._leases.add_listener(self._hear_of_loss)
        self._is_closed = False

    # -- ownership ----------------------------------------------------------------------------------------------------

    async def claim(self, run_id: str, *, force: bool = False) -> Claim:
        """Become the owner of a run. Raises `RunBusy` if a live owner has it and `force` is not given."""
        self.writers += 1
        try:
            if force:
                claim = await asyncio.to_thread(self.store.claim, run_id, force=True)
            else:
                claim = await self._claim_batches.claim(run_id)
        finally:
            self.writers -= 1
        self.adopt(claim)
        return claim

    def adopt(self, claim: Claim) -> None:
        """Own a run by a claim that was made with the store itself, until it is released."""
        self.writers += claim.run_id not in self._claims  # else it was taken from ourselves, by force
        self._claims[claim.run_id] = claim
        self._note_head(claim.run_id, claim.head)  # others' events, of which the watcher would tell nobody any more
        self.heads[claim.run_id] = claim.head

    async def release(self, claim: Claim) -> None:
        """Give a run up; it stays in the state it is in."""
        if self._claims.get(claim.run_id) == claim:
            del self._claims[claim.run_id]
            self._lost.discard(claim)
            self.writers -= 1
        if claim.run_id not in self._listeners:
            self.heads.pop(claim.run_id, None)
        if not self.store.forget(claim):
            await self._claim_batches.release(claim)

    @property
    def may_begin(self) -> bool:
        """True unless this process may have lost its runs without having heard of it yet."""
        return self._leases is None or (self._leases.is_holding and not self._lost)

    async def wait_until_held(self, claim: Claim) -> None:
        """Wait until the store says that this process still has its runs. Raises `LeaseLost`, `StoreUnavailable`."""
        deadline = self._loop.time() + self.owner_patience_s
        while claim not in self._lost:
            if self._leases is None or self._leases.is_holding:
                return
            if self._loop.time() > deadline:
                raise StoreUnavailable("The store has not said for long whether this process still has its runs.")
            await asyncio.sleep(_HELD_LOOK_S)
        raise LeaseLost(f"Run {claim.run_id!r} was taken over by another process.", run_id=claim.run_id)

    def note_outage(self) -> None:
        """Say that the store was out of reach: for a lease's time no run is taken from an owner whose lease is over."""
        if self._leases is not None:
            self._leases.note_outage()

    @contextlib.contextmanager
    def watching_for_loss(self, claim: Claim, on_loss: Callable[[], None]) -> Iterator[None]:
        """Call `on_loss` on the loop as soon as it is heard that another process has taken the run, until left."""
        self._loss_listeners[claim] = on_loss
        try:
            if claim in self._lost:
                self._loop.call_soon(on_loss)
            yield
        finally:
            self._loss_listeners.pop(claim, None)

    def _hear_of_loss(self, claim: Claim) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone
            self._loop.call_soon_threadsafe(self._note_loss, claim)

    def _note_loss(self, claim: Claim) -> None:
        if self._claims.get(claim.run_id) == claim:
            self._lost.add(claim)
            if (on_loss := self._loss_listeners.get(claim)) is not None:
                on_loss()

    # -- writing ------------------------------------------------------------------------------------------------------

    async def append(
        self, run_id: str, events: Sequence[Event], *, claim: Claim | None = None, rows: Sequence[Statement] = ()
    ) -> list[Event]:
        """Append events, with row changes in the same transaction, and return them as stored.

        Raises `LeaseLost` if `claim` is no longer the current one, `RowRefused` if a row was not as expected; then
        nothing was written. A caller cancelled while waiting does not know whether it was.
        """
        prepared = [prepare(event) for event in events]
        if any(event.run_id != run_id for event in events):
            raise RunIdInvalid(f"Only events of run {run_id!r} can be appended to it.")
        append = Append(run_id, prepared, claim.epoch if claim else None, rows)
        numbers = self.write(append)
        if not isinstance(numbers, list):
            numbers = await numbers
        return [item.stored_as(number) for item, number in zip(prepared, numbers, strict=True)]

    async def delete(self, claim: Claim, *, rows: Sequence[Statement] = ()) -> None:
        """Remove a claimed run's journal, with row changes in the same transaction; the claim is still to be released.

        Raises as `append` does; then nothing was changed.
        """
        await asyncio.to_thread(self.store.delete_run, claim.run_id, claim=claim, rows=rows)

    def write(self, append: Append) -> "list[int] | asyncio.Future[list[int]]":
        """Write an append and return its numbers; if it has to wait, a future that has them once it is committed."""
        if self._is_closed:
            raise StoreUnreadable("The journal is closed.", hint="Open a new one.")
        if self.writers <= 1 and self.store.is_local and not self._queue and not self._sender.is_under_way:
            try:
                return self._settle(append, self._commit([append])[0])
            except StoreBusy:
                pass  # another process writes: wait in the thread, not on the loop
        # It waits for the end of this turn of the loop, or for the commit that is under way, and goes with the others.
        done: asyncio.Future[list[int]] = self._loop.create_future()
        self._queue.append((append, done))
        if not self._is_flush_due:
            self._is_idle.clear()
            if self._sender.can_take(append):
                self._schedule()
        return done

    def _schedule(self) -> None:
        if self._queue and not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        waiting, self._queue = self._queue, []
        if self.store.is_local and not self._sender.is_under_way:
            # On the loop: measured, it waits for the disk no longer than a hand-over to a thread and back takes.
            try:
                self._finish(waiting, self._commit([append for append, _ in waiting]))
                return
            except StoreBusy:
                pass
            except BaseException as error:  # whatever it is, someone waits to hear of it
                self._finish(waiting, error)
                return
        self._queue = self._sender.deliver(waiting) + self._queue

    def _commit(self, batch: Sequence[Append]) -> list[AppendResult]:
        started = time.perf_counter()
        results = self.store.append(batch, wait_s=0)
        if self._commit_listeners:
            self._announce(batch, results, time.perf_counter() - started)
        return results

    def _finish_sent(self, waiting: Sequence[Waiting], outcome: Outcome, took_s: float) -> None:
        if self._commit_listeners and not isinstance(outcome, BaseException):
            self._announce([append for append, _ in waiting], outcome, took_s)
        self._finish(waiting, outcome)

    def add_commit_listener(self, listener: CommitListener) -> None:
        """Call `listener` after each commit from now on. What it raises is reported to the loop, not to the writer."""
        self._commit_listeners.append(listener)

    def remove_commit_listener(self, listener: CommitListener) -> None:
        self._commit_listeners.remove(listener)

    def _announce(self, batch: Sequence[Append], results: Sequence[AppendResult], took_s: float) -> None:
        for listener in list(self._commit_listeners):
            try:
                listener(batch, results, took_s)
            except Exception as error:
                self._report_listener(error)

    def _report_listener(self, error: Exception) -> None:
        # Not the writer's fault, who waits for an answer.
        self._loop.call_exception_handler({"message": "A listener of a journal failed", "exception": error})

    def _finish(self, waiting: Sequence[Waiting], outcome: Outcome) -> None:
        results = [outcome] * len(waiting) if isinstance(outcome, BaseException) else outcome
        for (append, done), result in zip(waiting, results, strict=True):
            if type(result) is list:
                if result:
                    run_id, head = append.run_id, result[-1]
                    if run_id in self._listeners:
                        self._note_head(run_id, head)
                    elif head > self.heads.get(run_id, 0):
                        self.heads[run_id] = head
                if not done.done():
                    done.set_result(result)
            elif isinstance(result, BaseException) and not done.done():
                done.set_exception(result)
        if not self._queue and not self._sender.is_under_way:
            self._is_idle.set()
        self._schedule()

    def _settle(self, append: Append, result: AppendResult) -> list[int]:
        if isinstance(result, HoldfastError):
            raise result
        self._note_head(append.run_id, result[-1] if result else 0)
        return result

    # -- reading ------------------------------------------------------------------------------------------------------

    async def read(self, run_id: str, after: int = 0) -> list[Event]:
        """Read all events with `seq > after`, in one bulk read."""
        head = self.heads.get(run_id)
        if self.store.is_local and head is not None and head - after <= _SHORT_TAIL:
            return self.store.list_events(run_id, after)
        return await asyncio.to_thread(self.store.list_events, run_id, after)

    async def read_head(self, run_id: str) -> int:
        """Read the number of the run's last event, 0 if there is none."""
        head = await self._reading_heads(run_id)
        self._note_head(run_id, head)
        return head

    async def query(self, read: Callable[[JournalStore], _T]) -> _T:
        """Read rows that stand beside the journals: on the loop where that is quick, else in a thread."""
        return await call_store(self.store, lambda _wait_s: read(self.store))

    async def follow(self, run_id: str, after: int = 0) -> AsyncIterator[Event]:
        """Yield every event after `after`, then each new one as it is committed, by whichever process.

        Ends when the journal is closed, and only then.
        """
        woken = asyncio.Event()
        with self.listening(run_id, lambda _head: woken.set()):
            while not self._is_closed:
                woken.clear()
                for event in await self.read(run_id, after):
                    after = event.seq
                    yield event
                if self.heads.get(run_id, 0) <= after:
                    await woken.wait()

    @contextlib.contextmanager
    def listening(self, run_id: str, on_head: Callable[[int], None]) -> Iterator[None]:
        """Call `on_head` on the loop with the run's last number, now and each time it has grown, until left."""
        self._listeners.setdefault(run_id, set()).add(on_head)
        self._loop.call_soon(self._call_listener, run_id, on_head)
        self._watch()
        try:
            yield
        finally:
            self._listeners[run_id].discard(on_head)
            if not self._listeners[run_id]:
                del self._listeners[run_id]

    @contextlib.contextmanager
    def noticing(self, on_change: Callable[[], None]) -> Iterator[None]:
        """Call `on_change` on the loop when another process may have written anything, until left."""
        self._change_listeners.append(on_change)
        try:
            self._watch()
            yield
        finally:
            self._change_listeners.remove(on_change)

    def _watch(self) -> None:
        if self._watcher is None:
            self._watcher = Watcher(
                *(self.store, self._loop, lambda: list(self._listeners), self._note_heads),
                *(lambda: self._sender.sender, lambda: bool(self._change_listeners)),
                lambda run_id: self.heads.get(run_id, 0),
            )
        self._watcher.look_now()

    def _note_heads(self, heads: dict[str, int], is_change: bool) -> None:
        for on_change in list(self._change_listeners) if is_change else ():
            on_change()
        for run_id, head in heads.items():
            self._note_head(run_id, head)

    def _note_head(self, run_id: str, head: int) -> None:
        if head <= self.heads.get(run_id, 0):
            return
        self.heads[run_id] = head
        for on_head in list(self._listeners[run_id]) if run_id in self._listeners else ():
            try:
                on_head(head)
            except Exception as error:
                self._report_listener(error)

    def _call_listener(self, run_id: str, on_head: Callable[[int], None]) -> None:
        if on_head in self._listeners.get(run_id, ()):
            on_head(self.heads.get(run_id, 0))

    # -- snapshots and the end ----------------------------------------------------------------------------------------

    async def save_snapshot(self, run_id: str, state: RunState) -> None:
        await asyncio.to_thread(self.store.save_snapshot, run_id, state)

    async def load_latest(self, run_id: str) -> RunState | None:
        return await asyncio.to_thread(self.store.load_latest, run_id)

    async def close(self) -> None:
        """Finish what is being written, give up every run and stop the threads; the store itself stays open."""
        self._is_closed = True
        for listeners in list(self._listeners.values()):
            for on_head in list(listeners):
                on_head(0)
        if self._leases is not None:
            self._leases.remove_listener(self._hear_of_loss)
        await self._claim_batches.settle()
        await self._is_idle.wait()
        try:
            for claim in list(self._claims.values()):
                await self.release(claim)
        finally:
            if self._watcher is not None:
                self._watcher.stop()
            await self._sender.close()

    async def _read_heads(self, run_ids: list[str]) -> Sequence[int]:
        heads = await call_store(self.store, lambda _wait_s: self.store.read_heads(run_ids))
        return [heads.get(run_id, 0) for run_id in run_ids]
