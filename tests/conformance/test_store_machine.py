"""Any sequence of operations on a store gives what the same sequence on a plain model gives."""

import dataclasses
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from tests.support.stores import open_store, progress

from holdfast.errors import SequenceConflict
from holdfast.runtime.checkpoint import Checkpointer
from holdfast.runtime.events import Event
from holdfast.runtime.state import RunState

RUN_IDS = st.sampled_from(["a", "b", "ä c"])
USERS = st.integers(0, 1)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


class StoreMachine(RuleBasedStateMachine):
    """Two handles on one store (in memory: one) must at all times agree with dictionaries and a list."""

    kind = ""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="hf-machine-"))
        self.events: dict[str, list[Event]] = {}
        self.snapshots: dict[str, RunState] = {}
        self.order: list[str] = []
        self.stores: list[Checkpointer] = []
        self.reopen(0)
        self.reopen(1)

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        shutil.rmtree(self.folder)

    def touch(self, run_id: str) -> None:
        self.order = [run_id, *(other for other in self.order if other != run_id)]

    def last_seq(self, run_id: str) -> int:
        return self.events[run_id][-1].seq if self.events.get(run_id) else 0

    def append(self, user: int, event: Event, seq: int) -> None:
        stored = self.stores[user].save_event(event)
        assert stored == dataclasses.replace(event, seq=seq)
        self.events.setdefault(event.run_id, []).append(stored)
        self.touch(event.run_id)

    @rule(user=USERS)
    def reopen(self, user: int) -> None:
        if len(self.stores) <= user:
            is_shared = self.kind == "memory" and self.stores
            self.stores.append(self.stores[0] if is_shared else open_store(self.kind, str(self.folder / "store")))
        elif self.kind != "memory":
            self.stores[user].close()
            self.stores[user] = open_store(self.kind, str(self.folder / "store"))

    @rule(user=USERS, run_id=RUN_IDS, value=JSON)
    def save_next(self, user: int, run_id: str, value: object) -> None:
        self.append(user, progress(run_id, value=value), self.last_seq(run_id) + 1)

    @rule(user=USERS, run_id=RUN_IDS, size=st.integers(30_000, 40_000))
    def save_big(self, user: int, run_id: str, size: int) -> None:
        self.append(user, progress(run_id, text="x" * size), self.last_seq(run_id) + 1)

    @rule(user=USERS, run_id=RUN_IDS, ahead=st.integers(1, 5))
    def save_with_a_number(self, user: int, run_id: str, ahead: int) -> None:
        seq = self.last_seq(run_id) + ahead
        self.append(user, progress(run_id, seq), seq)

    @precondition(lambda self: any(self.events.values()))
    @rule(user=USERS, run_id=RUN_IDS, behind=st.integers(0, 10))
    def save_too_late(self, user: int, run_id: str, behind: int) -> None:
        seq = self.last_seq(run_id) - behind
        if seq >= 1:
            with pytest.raises(SequenceConflict):
                self.stores[user].save_event(progress(run_id, seq))

    @precondition(lambda self: any(self.events.values()))
    @rule(user=USERS, data=st.data())
    def save_again(self, user: int, data: st.DataObject) -> None:
        events = [event for found in self.events.values() for event in found]
        event = data.draw(st.sampled_from(events))
        assert self.stores[user].save_event(event) == event

    @rule(user=USERS, run_id=RUN_IDS, value=JSON)
    def save_snapshot(self, user: int, run_id: str, value: object) -> None:
        state = RunState(run_id, data={"value": value}, last_seq=self.last_seq(run_id))
        self.stores[user].save_snapshot(run_id, state)
        self.snapshots[run_id] = state
        self.touch(run_id)

    @rule(user=USERS, run_id=RUN_IDS)
    def delete(self, user: int, run_id: str) -> None:
        self.stores[user].delete_run(run_id)
        self.events.pop(run_id, None)
        self.snapshots.pop(run_id, None)
        self.order = [other for other in self.order if other != run_id]

    @rule(user=USERS, run_id=RUN_IDS, since_seq=st.integers(0, 30))
    def read(self, user: int, run_id: str, since_seq: int) -> None:
        expected = [event for event in self.events.get(run_id, []) if event.seq > since_seq]
        assert self.stores[user].list_events(run_id, since_seq) == expected
        assert self.stores[user].load_latest(run_id) == self.snapshots.get(run_id)

    @invariant()
    def runs_are_in_order(self) -> None:
        assert [store.list_runs() for store in self.stores] == [self.order] * 2


@pytest.mark.parametrize("kind", ["memory", "jsonl", "sqlite"])
def test_a_store_behaves_as_its_model(kind: str) -> None:
    machine = type(f"{kind.title()}Machine", (StoreMachine,), {"kind": kind})

    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=30,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
