"""Lost connections and a server that goes away: no acknowledged event is lost, none is written twice."""

import os
import random
import socket
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from tests.support.postgres_server import control_server
from tests.support.stores import Place, finish, progress, seqs

from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.runtime.checkpoint import PostgresCheckpointer
from holdfast.runtime.checkpoint.base import Append, prepare
from holdfast.runtime.checkpoint.postgres import store as postgres
from holdfast.runtime.checkpoint.postgres.append import AppendAttempt
from holdfast.runtime.events import Event

Sql = Callable[..., list[tuple[object, ...]]]
OpenStore = Callable[..., PostgresCheckpointer]
RUNS = ("a", "b", "c")


class Writer(threading.Thread):
    """Appends batches over several runs until told to stop, and keeps what was acknowledged."""

    def __init__(self, store: PostgresCheckpointer) -> None:
        super().__init__()
        self.acknowledged: list[tuple[str, int, int]] = []
        self.errors: list[BaseException] = []
        self.is_done = threading.Event()
        self._store = store
        self._claims = {run_id: store.claim(run_id) for run_id in RUNS}

    def run(self) -> None:
        number = 0
        try:
            while not self.is_done.is_set():
                number += 1
                batch = [
                    Append(run_id, [prepare(progress(run_id, number=number))], self._claims[run_id].epoch)
                    for run_id in RUNS[: 1 + number % len(RUNS)]
                ]
                for append, result in zip(batch, self._store.append(batch), strict=True):
                    if isinstance(result, HoldfastError):
                        raise result
                    self.acknowledged += [(append.run_id, seq, number) for seq in result]
        except BaseException as error:
            self.errors.append(error)

    def wait_for_more(self, count: int = 20) -> None:
        goal = len(self.acknowledged) + count
        while len(self.acknowledged) < goal and self.is_alive():
            self.is_done.wait(0.01)

    def finish(self) -> None:
        self.is_done.set()
        self.join()
        assert self.errors == []


def assert_exactly_once(store: PostgresCheckpointer, writer: Writer) -> None:
    stored = [(run_id, e.seq, e.payload["number"]) for run_id in RUNS for e in store.list_events(run_id)]
    assert Counter(stored) == Counter(writer.acknowledged)
    for run_id in RUNS:
        assert seqs(store, run_id) == list(range(1, len(seqs(store, run_id)) + 1))


def cut(connection: "psycopg.Connection[Any]") -> None:
    """Cut the wire under a connection, as a broken network does."""
    with socket.socket(fileno=os.dup(connection.fileno())) as wire:
        wire.shutdown(socket.SHUT_RDWR)


def terminate_backends(sql: Sql) -> None:
    sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holdfast'")


def test_a_restart_of_the_server_in_a_stream_of_appends_loses_and_doubles_nothing(
    server_url: str, open_store: OpenStore
) -> None:
    store = open_store()
    writer = Writer(store)
    writer.start()
    for _ in range(2):
        writer.wait_for_more()
        control_server(server_url, "restart", "-m", "immediate")
    writer.wait_for_more()
    writer.finish()

    assert_exactly_once(open_store(), writer)


def test_connections_ended_at_random_moments_lose_and_double_nothing(open_store: OpenStore, sql: Sql) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    pick = random.Random(seed)
    writer = Writer(open_store())
    writer.start()
    for _ in range(30):
        writer.is_done.wait(pick.uniform(0, 0.03))
        terminate_backends(sql)
    writer.wait_for_more()
    writer.finish()

    assert_exactly_once(open_store(), writer)


@pytest.fixture(params=["an outside writer", "an owner"])
def save(request: pytest.FixtureRequest, store: PostgresCheckpointer) -> Callable[[str], Event]:
    """Every way in which an event gets into the store."""
    epoch = None if request.param == "an outside writer" else store.claim("r").epoch

    def save_one(name: str) -> Event:
        prepared = prepare(progress(name=name))
        (result,) = store.append([Append("r", [prepared], epoch)])
        assert isinstance(result, list)
        return prepared.stored_as(result[0])

    store.save_event(progress(name="first"))
    return save_one


def names(store: PostgresCheckpointer) -> list[str]:
    assert seqs(store) == list(range(1, len(seqs(store)) + 1))
    return [event.payload["name"] for event in store.list_events("r")]


def test_an_answer_that_was_lost_after_the_commit_is_found_out(
    store: PostgresCheckpointer, save: Callable[[str], Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    append = postgres.append_locked

    def append_and_lose(connection: Any, *args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        append(connection, *args, **options)
        cut(connection)
        connection.execute("SELECT 1")

    monkeypatch.setattr(postgres, "append_locked", append_and_lose)
    saved = save("ours")

    assert names(store) == ["first", "ours"]
    assert store.list_events("r", 1) == [saved]


def test_a_wire_cut_before_the_commit_arrives_writes_once(
    store: PostgresCheckpointer, save: Callable[[str], Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_first(attempt: AppendAttempt, *sent: Any) -> None:
        monkeypatch.undo()
        attempt.note(*sent)
        cut(store._writer.open())

    monkeypatch.setattr(AppendAttempt, "note", cut_first)
    saved = save("ours")

    assert names(store) == ["first", "ours"]
    assert store.list_events("r", 1) == [saved]


def test_after_a_lost_connection_another_writers_event_is_not_taken_for_ours(
    store: PostgresCheckpointer, url: str, save: Callable[[str], Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_first(attempt: AppendAttempt, *sent: Any) -> None:
        monkeypatch.undo()
        attempt.note(*sent)
        cut(store._writer.open())
        other = PostgresCheckpointer(url)
        other.save_event(progress(name="other"))
        other.close()

    monkeypatch.setattr(AppendAttempt, "note", cut_first)
    save("ours")

    assert names(store) == ["first", "other", "ours"]


def test_a_claim_whose_answer_was_lost_is_ours(store: PostgresCheckpointer, monkeypatch: pytest.MonkeyPatch) -> None:
    before = store.claim("r")
    store.release(before)
    write = postgres.write_in_transaction

    def write_and_lose(connection: Any, *args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        write(connection, *args, **options)
        connection.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(postgres, "write_in_transaction", write_and_lose)
    claim = store.claim("r")

    assert claim.epoch == before.epoch + 1
    (result,) = store.append([Append("r", [prepare(progress())], claim.epoch)])
    assert isinstance(result, list)


def test_connections_that_died_while_idle_are_replaced_unseen(store: PostgresCheckpointer, sql: Sql) -> None:
    store.save_event(progress())
    store.list_events("r")
    store.wait_for_change(0)
    claim = store.claim("r")
    uses: list[Callable[[], object]] = [
        lambda: store.save_event(progress()),
        lambda: store.list_events("r"),
        lambda: store.renew([claim]),
        lambda: store.release(claim),
        lambda: store.claim("r"),
        lambda: store.delete_run("other"),
        store.list_runs,
    ]
    for use in uses:
        terminate_backends(sql)
        use()

    assert store.wait_for_change(20)  # what was missed meanwhile counts as a change
    assert seqs(store) == [1, 2]


def test_a_server_that_stays_away_is_told_and_the_store_goes_on_when_it_is_back(
    server_url: str, open_store: OpenStore
) -> None:
    store = open_store(patience_s=0.2)
    claim = store.claim("r")
    store.list_events("r")
    control_server(server_url, "stop", "-m", "fast")
    try:
        with pytest.raises(StoreUnavailable) as refused:
            store.save_event(progress())
        with pytest.raises(StoreUnavailable):
            store.list_events("r")
        assert not store.wait_for_change(0.1)
        with pytest.raises(StoreUnavailable):
            open_store()
    finally:
        control_server(server_url, "start")

    assert refused.value.facts["may_be_written"] is False
    (result,) = store.append([Append("r", [prepare(progress())], claim.epoch)])
    assert isinstance(result, list)
    assert seqs(store) == [1]


def test_an_append_waits_for_a_server_that_comes_back(server_url: str, open_store: OpenStore) -> None:
    store = open_store()
    store.save_event(progress())
    control_server(server_url, "stop", "-m", "immediate")
    saving = threading.Thread(target=store.save_event, args=(progress(),))
    saving.start()

    control_server(server_url, "start")
    saving.join()

    assert seqs(store) == [1, 2]


def test_a_killed_process_leaves_whole_batches(place: Place, open_store: OpenStore) -> None:
    code = """
from holdfast.runtime.checkpoint.base import Append, prepare
n = 0
while True:
    n += 1
    store.append([Append(r, [prepare(progress(r, n=n)), prepare(progress(r, n=n))]) for r in "abc"])
    print(n, flush=True)
"""
    process = place.start_process(code)
    assert process.stdout is not None
    acknowledged = [int(process.stdout.readline()) for _ in range(20)]
    process.kill()
    acknowledged += [int(line) for line in process.stdout.read().split()]  # also what is in its buffer by now
    process.communicate()

    store = open_store()
    written = [[event.payload["n"] for event in store.list_events(run_id)] for run_id in "abc"]

    assert written[0] == written[1] == written[2]
    assert written[0] == sorted([*range(1, len(written[0]) // 2 + 1)] * 2)
    assert len(written[0]) // 2 - len(acknowledged) in (0, 1)


def test_a_program_ends_though_a_thread_was_ended_in_the_middle_of_a_notice(place: Place) -> None:
    """Threads of the interpreter's last moment keep their locks; what is left is closed without them."""
    code = """
store.save_event(progress())
store._notices._lock.acquire()  # as a thread that was ended in the middle of a notice
"""
    assert finish(place.start_process(code)) == ""
