"""Any sequence of claims, appends, takeovers and reopenings leaves what a plain model says: epochs, numbers, hashes."""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from tests.support.postgres_server import fresh_schema
from tests.support.stores import open_store, progress

from holdfast.errors import HoldfastError, LeaseLost, RunBusy, SequenceConflict
from holdfast.runtime.checkpoint.base import Append, Claim, prepare
from holdfast.runtime.checkpoint.hash_chain import genesis, link

RUN_IDS = st.sampled_from(["a", "b", "c"])
USERS = st.integers(0, 2)


class _ModelRun:
    """What is true of a run: who owns it, with which epoch, and what it holds."""

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.owner: int | None = None
        self.numbers: list[int] = []
        self.payloads: list[int] = []


class JournalMachine(RuleBasedStateMachine):
    """Three handles on one store, as three processes would have them, some of which keep claims they have lost."""

    kind = "sqlite"
    target = ""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="hf-journal-machine-"))
        self.place = self.new_place()
        self.stores: list[Any] = [open_store(self.kind, self.place) for _ in range(3)]
        self.runs: dict[str, _ModelRun] = {}
        self.claims: list[tuple[int, Claim]] = []
        self.count = 0

    def new_place(self) -> str:
        return str(self.folder / "store.db")

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        shutil.rmtree(self.folder)

    def run_of(self, run_id: str) -> _ModelRun:
        return self.runs.setdefault(run_id, _ModelRun())

    def new_append(self, run_id: str, epoch: int | None, size: int, seq: int = 0) -> tuple[Append, list[int]]:
        payloads = list(range(self.count, self.count + size))
        self.count += size
        events = [prepare(progress(run_id, seq, n=number)) for number in payloads]
        return Append(run_id, events, epoch), payloads

    def note_written(self, run_id: str, payloads: list[int], result: Any) -> None:
        run = self.run_of(run_id)
        start = run.numbers[-1] if run.numbers else 0
        assert result == list(range(start + 1, start + 1 + len(payloads)))
        run.numbers += result
        run.payloads += payloads

    @rule(user=USERS, run_id=RUN_IDS, force=st.booleans())
    def claim(self, user: int, run_id: str, force: bool) -> None:
        run = self.run_of(run_id)
        if run.owner is not None and not force:
            with pytest.raises(RunBusy):
                self.stores[user].claim(run_id)
            return
        claim = self.stores[user].claim(run_id, force=force)
        assert run.epoch is None or claim.epoch == run.epoch + 1
        assert claim.head == (run.numbers[-1] if run.numbers else 0)
        run.epoch, run.owner = claim.epoch, user
        self.claims.append((user, claim))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), size=st.integers(1, 3))
    def append_with_a_claim(self, data: st.DataObject, size: int) -> None:
        user, claim = data.draw(st.sampled_from(self.claims))
        append, payloads = self.new_append(claim.run_id, claim.epoch, size)
        (result,) = self.stores[user].append([append])
        if claim.epoch == self.run_of(claim.run_id).epoch:
            self.note_written(claim.run_id, payloads, result)
        else:
            assert isinstance(result, LeaseLost)

    @rule(user=USERS, run_id=RUN_IDS, size=st.integers(1, 3))
    def append_from_outside(self, user: int, run_id: str, size: int) -> None:
        append, payloads = self.new_append(run_id, None, size)
        (result,) = self.stores[user].append([append])
        self.note_written(run_id, payloads, result)

    @rule(user=USERS, run_id=RUN_IDS)
    def append_a_number_that_is_taken(self, user: int, run_id: str) -> None:
        run = self.run_of(run_id)
        if run.numbers:
            append, _ = self.new_append(run_id, None, 1, seq=run.numbers[-1])
            (result,) = self.stores[user].append([append])
            assert isinstance(result, SequenceConflict)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), user=USERS)
    def append_a_batch(self, data: st.DataObject, user: int) -> None:
        """Owners, zombies and outside writers in one transaction: each gets what it would get alone."""
        batch, expected = [], []
        for _ in range(data.draw(st.integers(1, 4))):
            claim = data.draw(st.none() | st.sampled_from([claim for _, claim in self.claims]))
            run_id = claim.run_id if claim else data.draw(RUN_IDS)
            append, payloads = self.new_append(run_id, claim.epoch if claim else None, 1)
            batch.append(append)
            is_current = claim is None or claim.epoch == self.run_of(run_id).epoch
            expected.append((run_id, payloads, is_current))
        results = self.stores[user].append(batch)
        for (run_id, payloads, is_current), result in zip(expected, results, strict=True):
            if is_current:
                self.note_written(run_id, payloads, result)
            else:
                assert isinstance(result, HoldfastError)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        user, claim = data.draw(st.sampled_from(self.claims))
        self.stores[user].release(claim)
        run = self.run_of(claim.run_id)
        if run.epoch == claim.epoch:
            run.owner = None

    @rule(user=USERS)
    def reopen(self, user: int) -> None:
        """A process ends: its claims stay known to no one but those who keep the number."""
        self.stores[user].close()
        self.stores[user] = open_store(self.kind, self.place)
        for run in self.runs.values():
            if run.owner == user:
                run.owner = None

    @rule(user=USERS, run_id=RUN_IDS, after=st.integers(0, 5))
    def read(self, user: int, run_id: str, after: int) -> None:
        run = self.run_of(run_id)
        events = self.stores[user].list_events(run_id, after)
        assert [event.seq for event in events] == [number for number in run.numbers if number > after]

    @invariant()
    def every_handle_sees_the_model(self) -> None:
        for store in self.stores:
            for run_id, run in self.runs.items():
                events = store.list_events(run_id)
                assert [event.seq for event in events] == run.numbers == list(range(1, len(run.numbers) + 1))
                assert [event.payload["n"] for event in events] == run.payloads
            heads = store.read_heads(list(self.runs))
            assert {run_id: head for run_id, head in heads.items() if head} == {
                run_id: run.numbers[-1] for run_id, run in self.runs.items() if run.numbers
            }

    @invariant()
    def hashes_chain(self) -> None:
        if self.kind == "sqlite":
            connection = self.stores[0]._open_reader()
            for run_id in self.runs:
                last = genesis(run_id)
                rows = connection.execute("SELECT seq, body, hash FROM events WHERE run_id = ? ORDER BY seq", (run_id,))
                for seq, body, row_hash in rows:
                    last = link(last, seq, body.encode())
                    assert last == row_hash
                heads = connection.execute(
                    "SELECT r.head_hash, e.hash FROM journal_runs AS r JOIN events AS e "
                    "ON e.run_id = r.run_id AND e.seq = r.head WHERE r.run_id = ?",
                    (run_id,),
                )
                assert all(head == stored for head, stored in heads)


@contextlib.contextmanager
def places(kind: str, get_postgres_url: Callable[[], str]) -> Iterator[Callable[[Any], str]]:
    with contextlib.ExitStack() as stack:
        if kind == "sqlite":
            yield lambda machine: str(machine.folder / "store.db")
        else:
            yield lambda machine: stack.enter_context(fresh_schema(get_postgres_url()))


@pytest.mark.parametrize(("kind", "examples"), [("sqlite", 40), ("postgres", 4)])
def test_a_journal_store_behaves_as_its_model(kind: str, examples: int, get_postgres_url: Callable[[], str]) -> None:
    with places(kind, get_postgres_url) as new_place:
        machine = type(f"{kind.title()}Machine", (JournalMachine,), {"kind": kind, "new_place": new_place})

        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=20,
                deadline=None,
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
            ),
        )
