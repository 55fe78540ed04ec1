"""The asynchronous journal on a SQLite file: group commit, owners, rows beside events, live readers, a clean end."""

import asyncio
import contextlib
import os
import signal
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.progress_limit import until
from tests.support.stores import Place, finish, progress, start_python

from holdfast.errors import (
    LeaseLost,
    PayloadInvalid,
    RowRefused,
    RunBusy,
    RunIdInvalid,
    SequenceConflict,
    StoreFull,
    StoreUnreadable,
)
from holdfast.runtime.checkpoint import SQLiteCheckpointer
from holdfast.runtime.checkpoint.base import Append, AppendResult, Statement
from holdfast.runtime.events import Event
from holdfast.runtime.journal import Journal
from holdfast.runtime.state import fold


class CountingStore(SQLiteCheckpointer):
    """Counts commits; `fails` are raised by the next appends instead of writing."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.batches: list[int] = []
        self.fails: list[Exception] = []

    def append(self, batch: Any, **options: Any) -> Any:
        if self.fails:
            raise self.fails.pop(0)
        results = super().append(batch, **options)
        self.batches.append(len(batch))
        return results


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def store(path: Path) -> Iterator[CountingStore]:
    store = CountingStore(path)
    yield store
    store.close()


@pytest.fixture
async def journal(store: CountingStore) -> AsyncIterator[Journal]:
    journal = Journal(store)
    yield journal
    await journal.close()


def read(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


# -- group commit -----------------------------------------------------------------------------------------------------


async def test_an_append_is_acknowledged_after_its_commit(journal: Journal, path: Path) -> None:
    for is_alone in (True, False):
        journal.writers = 0 if is_alone else 2
        (stored,) = await journal.append("r", [progress(n=1)])
        assert read(path, "SELECT max(seq) FROM events WHERE run_id = 'r'") == [(stored.seq,)]


async def test_appends_of_many_runs_share_a_transaction(journal: Journal, store: CountingStore) -> None:
    claims = await asyncio.gather(*(journal.claim(f"r{number}") for number in range(20)))

    stored = await asyncio.gather(
        *(journal.append(claim.run_id, [progress(claim.run_id, n=n)], claim=claim) for claim in claims for n in (1, 2))
    )

    assert store.batches == [40]
    assert [event.seq for (event,) in stored] == [1, 2] * 20
    assert all(len(store.list_events(f"r{number}")) == 2 for number in range(20))


async def test_several_appends_of_one_run_in_one_batch_keep_their_order(journal: Journal, store: CountingStore) -> None:
    journal.writers = 2

    stored = await asyncio.gather(*(journal.append("r", [progress(n=n), progress(n=n + 0.5)]) for n in range(5)))

    assert store.batches == [5]
    assert [event.seq for events in stored for event in events] == list(range(1, 11))
    assert [event.payload["n"] for event in store.list_events("r")] == [n / 2 for n in range(10)]


async def test_a_refused_append_does_not_fail_its_neighbours(
    journal: Journal, store: CountingStore, path: Path
) -> None:
    zombie = await journal.claim("a")
    owner = await journal.claim("a", force=True)
    await journal.append("a", [progress("a")], claim=owner)

    results = await asyncio.gather(
        journal.append("a", [progress("a", n="zombie")], claim=zombie),
        journal.append("b", [progress("b", n="neighbour")]),
        journal.append("a", [progress("a", seq=1)]),
        journal.append("a", [progress("a", n="rows")], rows=[Statement("DELETE FROM blobs", {}, expect=1)]),
        journal.append("a", [progress("a", n="owner")], claim=owner),
        return_exceptions=True,
    )

    assert [type(result) for result in results] == [LeaseLost, list, SequenceConflict, RowRefused, list]
    assert [event.payload.get("n") for event in store.list_events("a")] == [None, "owner"]
    assert [event.payload["n"] for event in store.list_events("b")] == ["neighbour"]
    assert SQLiteCheckpointer(path).list_events("a") == store.list_events("a")


async def test_what_cannot_be_journaled_is_refused_before_the_batch(journal: Journal, store: CountingStore) -> None:
    journal.writers = 2

    results = await asyncio.gather(
        journal.append("r", [progress(n={1, 2})]), journal.append("r", [progress(n=1)]), return_exceptions=True
    )

    assert [type(result) for result in results] == [PayloadInvalid, list]
    assert store.batches == [1]


async def test_a_full_disk_reaches_everyone_who_waits_and_the_journal_goes_on_afterwards(
    journal: Journal, store: CountingStore
) -> None:
    claim = await journal.claim("r")
    journal.writers = 2
    store.fails = [StoreFull("no space left")]

    failed = await asyncio.gather(
        *(journal.append(run_id, [progress(run_id)]) for run_id in ("r", "s", "t")), return_exceptions=True
    )
    assert [type(result) for result in failed] == [StoreFull] * 3

    await journal.append("r", [progress()], claim=claim)
    assert [event.seq for event in store.list_events("r")] == [1]
    assert store.list_events("s") == []


async def test_a_really_full_database_loses_nothing_that_was_acknowledged(
    journal: Journal, store: CountingStore, path: Path
) -> None:
    claim = await journal.claim("r")
    (pages,) = read(path, "PRAGMA page_count")[0]
    store._writer.execute(f"PRAGMA max_page_count = {pages + 5}")
    acknowledged = 0
    with contextlib.suppress(StoreFull):
        while acknowledged < 100:
            await journal.append("r", [progress(text="x" * 5000)], claim=claim)
            acknowledged += 1
    assert 0 < acknowledged < 100
    store._writer.execute("PRAGMA max_page_count = 1000000")

    await journal.append("r", [progress(text="after")], claim=claim)

    events = SQLiteCheckpointer(path).list_events("r")
    assert [event.seq for event in events] == list(range(1, acknowledged + 2))
    assert events[-1].payload == {"text": "after"}


async def test_whoever_is_cancelled_while_waiting_does_not_disturb_the_others(
    journal: Journal, store: CountingStore
) -> None:
    journal.writers = 2
    impatient = asyncio.create_task(journal.append("r", [progress(n="impatient")]))
    patient = asyncio.create_task(journal.append("r", [progress(n="patient")]))
    await asyncio.sleep(0)
    impatient.cancel()

    (stored,) = await patient

    assert impatient.cancelled()
    assert stored.seq == len(store.list_events("r"))
    assert (await journal.append("r", [progress(n="next")]))[0].seq == stored.seq + 1


# -- owners -----------------------------------------------------------------------------------------------------------


async def test_a_claim_is_exclusive_until_it_is_released(journal: Journal, path: Path) -> None:
    other = SQLiteCheckpointer(path)
    claim = await journal.claim("r")
    for claiming in (journal.claim("r"), asyncio.to_thread(other.claim, "r")):
        with pytest.raises(RunBusy):
            await claiming

    await journal.release(claim)

    assert other.claim("r").epoch == claim.epoch + 1
    other.close()
    assert (await journal.claim("r")).epoch == claim.epoch + 2


async def test_a_zombie_is_refused_and_the_owner_and_outside_writers_are_not(journal: Journal, path: Path) -> None:
    zombie = await journal.claim("r")
    await journal.append("r", [progress(n=1)], claim=zombie)
    other = SQLiteCheckpointer(path)
    other_journal = Journal(other)
    owner = await other_journal.claim("r", force=True)

    for _ in range(2):
        with pytest.raises(LeaseLost) as raised:
            await journal.append("r", [progress(n="zombie")], claim=zombie)
        assert raised.value.code == "lease_lost"
    await journal.append("r", [progress(n="outside")])
    await other_journal.append("r", [progress(n="owner")], claim=owner)
    await journal.release(zombie)
    with pytest.raises(RunBusy):
        await journal.claim("r")

    assert [event.payload["n"] for event in other.list_events("r")] == [1, "outside", "owner"]
    await other_journal.close()
    other.close()


async def test_a_zombie_in_the_same_process_does_not_take_the_lock_of_its_successor_along(journal: Journal) -> None:
    zombie = await journal.claim("r")
    owner = await journal.claim("r", force=True)

    await journal.release(zombie)

    with pytest.raises(RunBusy):
        await journal.claim("r")
    await journal.append("r", [progress()], claim=owner)
    await journal.release(owner)
    await journal.claim("r")


async def test_a_stopped_process_that_wakes_up_is_refused(tmp_path: Path, journal: Journal, path: Path) -> None:
    code = """
import asyncio, sys
from holdfast.errors import LeaseLost
from holdfast.runtime.checkpoint import SQLiteCheckpointer
from holdfast.runtime.journal import Journal
from tests.support.stores import progress

async def main():
    journal = Journal(SQLiteCheckpointer(sys.argv[1]))
    claim = await journal.claim("r")
    await journal.append("r", [progress(n="child")], claim=claim)
    print("claimed", flush=True)
    sys.stdin.readline()
    try:
        await journal.append("r", [progress(n="zombie")], claim=claim)
    except LeaseLost:
        print("refused", flush=True)

asyncio.run(main())
"""
    child = start_python(code, path)
    assert child.stdout.readline() == "claimed\n"
    child.send_signal(signal.SIGSTOP)
    with pytest.raises(RunBusy):
        await journal.claim("r")
    owner = await journal.claim("r", force=True)
    await journal.append("r", [progress(n="owner")], claim=owner)
    child.send_signal(signal.SIGCONT)

    out, err = child.communicate("go\n")

    assert out == "refused\n", err
    assert [event.payload["n"] for event in await journal.read("r")] == ["child", "owner"]


async def test_a_claim_that_nobody_waits_for_any_more_is_given_back(path: Path) -> None:
    store = CountingStore(path)
    journal = Journal(store)
    with writing_elsewhere(path):
        claiming = asyncio.create_task(journal.claim("r"))
        await asyncio.sleep(0.05)
        claiming.cancel()
        closing = asyncio.create_task(journal.close())
        await asyncio.sleep(0)
    await closing

    journal = Journal(store)
    await journal.claim("r")
    await journal.close()
    store.close()


# -- rows beside events -----------------------------------------------------------------------------------------------


async def test_rows_and_events_change_together_or_not_at_all(
    journal: Journal, store: CountingStore, path: Path
) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE work (name TEXT PRIMARY KEY, state TEXT)")
        connection.commit()
    claim = await journal.claim("r")

    async def append(sql: str, expect: int | None = 1, **params: Any) -> list[Event]:
        return await journal.append("r", [progress()], claim=claim, rows=[Statement(sql, params, expect)])

    await append("INSERT INTO work VALUES (:name, 'new')", name="a")
    await append("UPDATE work SET state = 'done' WHERE name = :name AND state = 'new'", name="a")
    for sql, expect in [
        ("UPDATE work SET state = 'again' WHERE name = :name AND state = 'new'", 1),
        ("INSERT INTO work VALUES (:name, 'twice')", 1),
        ("UPDATE work SET state = 'many'", 2),
    ]:
        with pytest.raises(RowRefused) as raised:
            await append(sql, expect, name="a")
        assert raised.value.code == "row_refused"
    await append("UPDATE work SET state = 'whatever' WHERE name = 'nobody'", None)

    assert read(path, "SELECT * FROM work") == [("a", "done")]
    assert [event.seq for event in store.list_events("r")] == [1, 2, 3]


async def test_a_row_change_of_one_row_is_refused_with_nothing_changed(
    journal: Journal, store: CountingStore, path: Path
) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE work (name TEXT PRIMARY KEY)")
        connection.commit()
    insert = Statement("INSERT INTO work VALUES (:name)", {"name": "a"}, is_of_one_row=True)
    missed = Statement("DELETE FROM work WHERE name = :name", {"name": "b"}, is_of_one_row=True)

    first, *refused, last = await asyncio.gather(
        journal.append("r", [progress(n=1)], rows=[insert]),
        journal.append("r", [progress(n=2)], rows=[insert]),
        journal.append("r", [progress(n=3)], rows=[missed]),
        journal.append("r", [progress(n=4)]),
        return_exceptions=True,
    )

    assert [type(result) for result in (first, *refused, last)] == [list, RowRefused, RowRefused, list]
    assert read(path, "SELECT * FROM work") == [("a",)]
    assert [event.payload["n"] for event in store.list_events("r")] == [1, 4]


@pytest.mark.parametrize("count", [15, 16, 17, 40])
async def test_a_batch_of_any_size_is_written_whole_and_in_order(
    journal: Journal, store: CountingStore, path: Path, count: int
) -> None:
    await asyncio.gather(*(journal.append(f"r{number % 3}", [progress(f"r{number % 3}")]) for number in range(count)))

    rows = read(path, "SELECT run_id, seq FROM events ORDER BY position")
    assert rows == [(f"r{number % 3}", number // 3 + 1) for number in range(count)]
    assert sum(len(store.list_events(f"r{number}")) for number in range(3)) == count


async def test_of_several_statements_none_remains_if_the_last_is_refused(journal: Journal, path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE work (name TEXT PRIMARY KEY)")
        connection.commit()
    rows = [Statement("INSERT INTO work VALUES (:n)", {"n": n}) for n in ("a", "b", "a")]

    with pytest.raises(RowRefused):
        await journal.append("r", [progress()], rows=rows)

    assert read(path, "SELECT * FROM work") == []
    assert await journal.read("r") == []


# -- live readers -----------------------------------------------------------------------------------------------------


async def take(events: AsyncIterator[Event], count: int) -> list[int]:
    return [(await anext(events)).seq for _ in range(count)]


async def test_a_follower_sees_every_event_once_and_in_order(journal: Journal) -> None:
    await journal.append("r", [progress() for _ in range(3)])
    following = journal.follow("r", after=1)
    assert await take(following, 2) == [2, 3]

    for _ in range(20):
        await journal.append("r", [progress(), progress()])
    await journal.append("other", [progress("other")])

    assert await take(following, 40) == list(range(4, 44))
    await following.aclose()


async def test_many_followers_share_the_journal(journal: Journal) -> None:
    readers = [asyncio.create_task(take(journal.follow("r", after), 50 - after)) for after in range(30)]
    await asyncio.sleep(0)

    for _ in range(50):
        await journal.append("r", [progress()])

    assert await asyncio.gather(*readers) == [list(range(after + 1, 51)) for after in range(30)]


async def test_a_follower_hears_of_a_run_that_does_not_exist_yet(journal: Journal) -> None:
    reader = asyncio.create_task(take(journal.follow("r"), 1))
    await asyncio.sleep(0)
    await journal.append("r", [progress()])

    assert await reader == [1]


async def test_a_follower_sees_what_another_process_writes(journal: Journal, path: Path) -> None:
    child = Place("sqlite", str(path)).start_process(
        "for n in range(300): store.save_event(progress(n=n, big='x' * (n % 3) * 20_000))"
    )

    seen = await take(journal.follow("r"), 300)

    assert seen == list(range(1, 301))
    finish(child)


async def test_followers_end_when_the_journal_is_closed(store: CountingStore) -> None:
    journal = Journal(store)
    await journal.append("r", [progress()])

    async def follow() -> list[int]:
        return [event.seq async for event in journal.follow("r")]

    readers = [asyncio.create_task(follow()) for _ in range(3)]
    await until(lambda: bool(journal._listeners))
    await journal.append("r", [progress()])
    await asyncio.sleep(0)
    await journal.close()

    assert await asyncio.gather(*readers) == [[1, 2]] * 3
    with pytest.raises(StoreUnreadable, match="closed"):
        await journal.append("r", [progress()])


@contextlib.contextmanager
def writing_elsewhere(path: Path) -> Iterator[None]:
    """Another process holds the file's write lock as long as the block lasts."""
    code = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
"""
    child = start_python(code, path)
    assert child.stdout.readline() == "locked\n"
    try:
        yield
    finally:
        child.communicate("go\n")


async def test_a_writer_in_another_process_does_not_block_the_loop(journal: Journal, path: Path) -> None:
    owner = await journal.claim("r")
    await journal.append("r", [progress()], claim=owner)
    with writing_elsewhere(path):
        waiting = [
            asyncio.create_task(journal.append("r", [progress()], claim=owner)),
            asyncio.create_task(journal.claim("s")),
        ]
        await until(lambda: journal._sender.is_under_way)
        waiting += [
            asyncio.create_task(journal.append("t", [progress("t")])),
            asyncio.create_task(journal.claim("u")),
        ]
        for _ in range(20):  # a loop that were blocked would get here when the writer has given up, or never
            await asyncio.sleep(0.005)
            assert [event.seq for event in await journal.read("r")] == [1]
        assert not any(task.done() for task in waiting)

    await asyncio.gather(*waiting)
    assert [event.seq for event in await journal.read("r")] == [1, 2]


# -- big values, snapshots --------------------------------------------------------------------------------------------


async def test_a_big_value_is_stored_once_and_goes_with_its_last_run(
    journal: Journal, store: CountingStore, path: Path
) -> None:
    big = "x" * 1_000_000
    for run_id in ("a", "b"):
        for number in range(5):
            await journal.append(run_id, [progress(run_id, result=big, number=number)])

    assert read(path, "SELECT count(*), sum(length(body)) FROM blobs") == [(1, 1_000_002)]
    assert all(event.payload["result"] == big for event in await journal.read("a"))

    store.delete_run("a")
    assert read(path, "SELECT count(*) FROM blobs") == [(1,)]
    assert len(await journal.read("b")) == 5
    store.delete_run("b")
    assert read(path, "SELECT count(*) FROM blobs") == [(0,)]


async def test_a_snapshot_and_the_tail_fold_to_what_the_whole_journal_does(journal: Journal) -> None:
    kinds = [
        "run.created",
        "run.started",
        "agent.started",
        "agent.finished",
        "tool.result",
        "state.delta",
        "run.failed",
    ]
    for number in range(40):
        kind = kinds[number % len(kinds)]
        event = Event("r", kind=kind, payload={"node": f"n{number % 5}", "key": f"k{number}", "result": number})
        await journal.append("r", [event])
        if number == 24:
            state = fold(await journal.read("r"))
            assert state is not None
            await journal.save_snapshot("r", state)

    snapshot = await journal.load_latest("r")
    assert snapshot is not None
    assert snapshot.last_seq == 25
    assert fold(await journal.read("r", snapshot.last_seq), snapshot) == fold(await journal.read("r"))


# -- the end ----------------------------------------------------------------------------------------------------------


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts through /proc")
async def test_nothing_is_left_behind_after_closing(tmp_path: Path) -> None:
    async def use(number: int) -> None:
        store = SQLiteCheckpointer(tmp_path / f"{number}.db")
        journal = Journal(store)
        claims = [await journal.claim(f"r{n}") for n in range(5)]
        forced = await journal.claim("r0", force=True)
        await asyncio.gather(*(journal.append(c.run_id, [progress(c.run_id)], claim=c) for c in [forced, *claims[1:]]))
        reader = asyncio.create_task(take(journal.follow("r1"), 1))
        await reader
        await journal.close()
        store.close()

    await use(0)
    await until(lambda: threads_of_ours() == 0)
    files = open_files()
    for number in range(1, 6):
        await use(number)

    await until(lambda: threads_of_ours() == 0)
    assert open_files() <= files


def threads_of_ours() -> int:
    # Those that call the plain functions of steps serve the whole process, and wait for the next one.
    names = [thread.name for thread in threading.enumerate()]
    return sum(name.startswith("holdfast-") and name != "holdfast-step" for name in names)


@pytest.mark.parametrize("has_more", [False, True])
async def test_closing_finishes_what_is_being_written(path: Path, has_more: bool) -> None:
    store = CountingStore(path)
    journal = Journal(store)
    journal.writers = 2
    with writing_elsewhere(path):
        appending = [asyncio.create_task(journal.append("r", [progress()])) for _ in range(3)]
        await until(lambda: journal._sender.is_under_way)
        if has_more:
            appending.append(asyncio.create_task(journal.append("r", [progress()])))
        await asyncio.sleep(0)
        closing = asyncio.create_task(journal.close())
        await asyncio.sleep(0.01)
        assert not closing.done()

    await asyncio.gather(closing, *appending)
    assert len(store.list_events("r")) == len(appending)
    store.close()


async def test_each_commit_is_announced_with_what_became_of_it(journal: Journal) -> None:
    commits: list[tuple[list[str], list[object]]] = []

    def note(batch: Sequence[Append], results: Sequence[AppendResult], took_s: float) -> None:
        assert took_s > 0
        commits.append(([append.run_id for append in batch], list(results)))

    journal.add_commit_listener(note)
    await journal.append("a", [progress("a")])
    journal.writers = 2
    await asyncio.gather(journal.append("a", [progress("a")]), journal.append("b", [progress("b")]))

    assert commits == [(["a"], [[1]]), (["a", "b"], [[2], [1]])]


async def test_a_commit_is_announced_to_every_listener_until_it_is_removed(journal: Journal) -> None:
    metrics: list[int] = []
    feed: list[int] = []

    def count(batch: Sequence[Append], _results: Sequence[AppendResult], _took_s: float) -> None:
        metrics.append(len(batch))

    journal.add_commit_listener(count)
    journal.add_commit_listener(lambda batch, _results, _took_s: feed.append(len(batch)))
    await journal.append("a", [progress("a")])
    journal.remove_commit_listener(count)
    await journal.append("a", [progress("a")])

    assert (metrics, feed) == ([1], [1, 1])


async def test_a_commit_listener_that_fails_is_not_the_writers_fault(journal: Journal) -> None:
    reported: list[object] = []
    heard: list[int] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context["exception"]))

    def fail(batch: Sequence[Append], _results: Sequence[AppendResult], _took_s: float) -> None:
        raise ValueError("broken")

    journal.add_commit_listener(fail)
    journal.add_commit_listener(lambda batch, _results, _took_s: heard.append(len(batch)))

    assert [event.seq for event in await journal.append("a", [progress("a")])] == [1]
    assert (heard, [str(error) for error in reported]) == ([1], ["broken"])


async def test_an_event_of_another_run_is_refused(journal: Journal, store: CountingStore) -> None:
    with pytest.raises(RunIdInvalid, match="Only events of run 'a'"):
        await journal.append("a", [progress("b")])

    assert store.list_runs() == []
