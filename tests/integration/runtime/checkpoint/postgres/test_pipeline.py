"""Appends that are sent without waiting for the answer: when they count, in which order, and which way each goes."""

import asyncio
import os
import random
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.network import Wire
from tests.support.postgres_runs import append, names, own
from tests.support.progress_limit import until
from tests.support.stores import progress

from holdfast.errors import LeaseLost, RowRefused, StoreUnavailable, StoreUnreadable
from holdfast.runtime import threads
from holdfast.runtime.checkpoint import PostgresCheckpointer
from holdfast.runtime.checkpoint.base import Statement
from holdfast.runtime.checkpoint.postgres import pipeline
from holdfast.runtime.checkpoint.postgres.pipeline import PostgresPipeline
from holdfast.runtime.events import Event
from holdfast.runtime.journal import Journal

Sql = Callable[..., list[tuple[object, ...]]]
OpenStore = Callable[..., PostgresCheckpointer]
BIG = "x" * 100_000


async def test_an_owners_append_is_committed_when_it_is_acknowledged(
    journal: Journal, open_store: OpenStore, sent: list[int]
) -> None:
    claims = await own(journal, "r")
    other = open_store()
    for number in range(10):
        stored = await append(journal, claims["r"], number)
        assert other.list_events("r", stored.seq - 1) == [stored]

    assert sent == [1] * 10
    assert names(other) == ["first", *range(10)]


async def test_many_runs_share_two_batches_so_that_one_is_written_while_the_other_works(
    journal: Journal, store: PostgresCheckpointer, sent: list[int]
) -> None:
    claims = await own(journal, *(f"r{number}" for number in range(64)))
    commits: list[int] = []
    journal.add_commit_listener(
        lambda batch, results, _took_s: commits.append(len(batch) if len(batch) == len(results) else 0)
    )
    for number in range(5):
        await asyncio.gather(*(append(journal, claim, number) for claim in claims.values()))

    assert sum(sent) == 5 * 64
    assert sorted(commits) == sorted(sent)
    assert sent[:2] == [32, 32]
    assert all(names(store, run_id) == ["first", *range(5)] for run_id in claims)


async def test_more_than_the_network_takes_at_once_is_sent_bit_by_bit(
    far_journal: Journal, wire: Wire, open_store: OpenStore, sent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = await own(far_journal, *(f"r{number}" for number in range(64)))
    pipeline = far_journal._sender.pipeline_route.pipeline
    assert isinstance(pipeline, PostgresPipeline)
    left: list[bool] = []
    flush = pipeline.flush

    def note_flush() -> None:
        flush()
        left.append(pipeline.has_more_to_send)

    monkeypatch.setattr(pipeline, "flush", note_flush)
    long = "y" * 30_000
    wire.is_flowing.clear()
    waiting = asyncio.gather(*(append(far_journal, claim, long) for claim in claims.values()))
    await until(lambda: len(left) >= 2)
    assert left == [True, True]
    wire.is_flowing.set()
    await waiting
    await append(far_journal, claims["r0"], "short")

    assert sent == [32, 32, 1]
    assert not left[-1]
    assert all(names(open_store(), run_id)[:2] == ["first", long] for run_id in ("r0", "r40", "r63"))


async def test_appends_of_one_run_keep_their_order_whichever_way_they_go(
    journal: Journal, store: PostgresCheckpointer, sql: Sql, sent: list[int]
) -> None:
    sql("CREATE TABLE counts (number int)")
    sql("INSERT INTO counts VALUES (0)")
    claims = await own(journal, "r", "s")
    pick = random.Random(seed := random.randrange(1_000_000))
    print(f"seed {seed}")
    add = Statement("UPDATE counts SET number = number + 1", {})
    refused = Statement("UPDATE counts SET number = 9 WHERE number < 0", {})
    tasks, names_of = [], {"r": ["first"], "s": ["first"]}
    for number in range(200):
        claim = claims[pick.choice("rs")]
        way = pick.choice(("plain", "plain", "plain", "rows", "big", "refused", "wait"))
        if way == "wait":
            # Whatever comes after everything was written goes over the line.
            await (asyncio.wait(tasks) if tasks and pick.random() < 0.5 else asyncio.sleep(pick.uniform(0, 0.004)))
            continue
        name = f"{number}{BIG}" if way == "big" else str(number)
        rows = {"rows": [add], "refused": [refused]}.get(way, [])
        if way != "refused":
            names_of[claim.run_id].append(name)
        tasks.append(asyncio.create_task(append(journal, claim, name, rows=rows)))
        await asyncio.sleep(0)
    results = await asyncio.gather(*tasks, return_exceptions=True)

    assert {type(result) for result in results} == {Event, RowRefused}
    assert {run_id: names(store, run_id) for run_id in claims} == names_of
    assert len(sent) > 3


async def test_what_others_write_is_seen_and_a_taken_run_is_lost_without_harm_to_its_neighbours(
    journal: Journal, open_store: OpenStore
) -> None:
    claims = await own(journal, "r", "s")
    other = open_store()
    other.save_event(progress(name="other"))
    await asyncio.gather(*(append(journal, claim, "mine") for claim in claims.values()))
    other.claim("r", force=True)

    results = await asyncio.gather(
        *(append(journal, claim, "late") for claim in claims.values()), return_exceptions=True
    )

    assert [type(result) for result in results] == [LeaseLost, Event]
    assert names(other) == ["first", "other", "mine"]
    assert names(other, "s") == ["first", "mine", "late"]


async def test_a_listener_that_fails_takes_no_answer_from_anyone(journal: Journal) -> None:
    claims = await own(journal, *(f"r{number}" for number in range(40)))
    contexts: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, about: contexts.append(about))

    def fail(_head: int) -> None:
        raise ValueError("not the writer's fault")

    with journal.listening("r3", fail):
        stored = await asyncio.gather(*(append(journal, claim, "ours") for claim in claims.values()))

    assert [event.run_id for event in stored] == list(claims)
    assert {str(about["exception"]) for about in contexts} == {"not the writer's fault"}


@pytest.mark.parametrize("default", ["transaction_read_only%3Don", "transaction_isolation%3Dserializable"])
async def test_what_a_role_or_a_database_has_by_default_does_not_count(
    url: str, open_store: OpenStore, sent: list[int], default: str
) -> None:
    store = PostgresCheckpointer(f"{url}%20-cdefault_{default}")
    journal = Journal(store)
    claims = await own(journal, "r")
    open_store().save_event(progress(name="other"))
    for number in range(5):
        await append(journal, claims["r"], number)
    await journal.close()
    store.close()

    assert names(open_store()) == ["first", "other", *range(5)]
    assert sent == [1] * 5


async def test_a_closed_store_takes_nothing_and_the_journal_still_closes(
    open_store: OpenStore, sent: list[int]
) -> None:
    store = open_store()
    journal = Journal(store)
    claims = await own(journal, "r")
    pipeline = journal._sender.pipeline_route.pipeline
    assert pipeline is not None
    number = pipeline.fileno()
    await asyncio.to_thread(store.close)

    with pytest.raises(StoreUnreadable, match="closed"):
        await append(journal, claims["r"], "too late")
    with pytest.raises(StoreUnreadable, match="closed"):
        await journal.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
    assert (sent, names(open_store())) == ([], ["first"])


async def test_two_journals_on_one_store_hear_everything(
    journal: Journal, store: PostgresCheckpointer, open_store: OpenStore
) -> None:
    second, other = Journal(store), open_store()
    heard: list[list[int]] = [[], []]
    with journal.listening("r", heard[0].append), second.listening("r", heard[1].append):
        for number in range(1, 11):
            other.save_event(progress(name=number))
            await until(lambda number=number: heard[0][-1:] == heard[1][-1:] == [number])  # type: ignore[misc]
    await second.close()


def has_heard(store: PostgresCheckpointer, run_id: str) -> bool:
    return any(notice.run_ids is not None and run_id in notice.run_ids for notice in list(store._listener._last))


async def test_readers_are_woken_by_what_others_write_and_not_by_the_line(
    journal: Journal, store: PostgresCheckpointer, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Any] = []
    monkeypatch.setattr(threads, "_LOOK_EVERY_S", 3600)
    read_heads = store.read_heads

    def count(run_ids: Any) -> Any:
        looks.append(run_ids)
        return read_heads(run_ids)

    monkeypatch.setattr(store, "read_heads", count)
    claims = await own(journal, "r")
    other = open_store()
    heard: list[int] = []
    beside: list[int] = []
    with journal.listening("r", heard.append), journal.listening("s", beside.append):
        other.save_event(progress("s", name="other"))
        await until(lambda: beside[-1:] == [1])
        # What others write is told in order, and one after the other is looked at: once the second of these is heard,
        # of which nobody here wants to know, nothing earlier is on its way any more.
        for run_id in ("t", "u"):
            other.save_event(progress(run_id, name="other"))
            await until(lambda run_id=run_id: has_heard(store, run_id))  # type: ignore[misc]
        before = len(looks)
        for number in range(30):
            await append(journal, claims["r"], number)
        assert heard[-1] == 31
        other.save_event(progress("s", name="other"))
        await until(lambda: beside[-1] == 2)
        assert len(looks) == before + 1

        other.save_event(progress(name="other"))
        await until(lambda: heard[-1] == 32)


async def test_without_a_line_appends_go_through_the_thread(
    journal: Journal, store: PostgresCheckpointer, monkeypatch: pytest.MonkeyPatch, sent: list[int]
) -> None:
    def refuse() -> None:
        raise StoreUnavailable("too many connections")

    monkeypatch.setattr(store, "open_pipeline", refuse)
    claim = await journal.claim("r")
    for number in range(3):
        await append(journal, claim, number)

    assert names(store) == [0, 1, 2]
    assert sent == []


async def test_a_forked_child_leaves_the_line_alone(
    journal: Journal, store: PostgresCheckpointer, sent: list[int]
) -> None:
    claims = await own(journal, "r")
    pid = os.fork()
    if pid == 0:
        import gc

        journal._sender.pipeline_route.pipeline = None
        gc.collect()
        os._exit(0)
    os.waitpid(pid, 0)
    await append(journal, claims["r"], "still there")

    assert sent == [1]
    assert names(store) == ["first", "still there"]


async def test_a_closed_journal_leaves_no_connection_behind(store: PostgresCheckpointer) -> None:
    journal = Journal(store)
    await own(journal, "r")
    pipeline = journal._sender.pipeline_route.pipeline
    assert pipeline is not None
    number = pipeline.fileno()
    await journal.close()

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


async def test_what_cannot_be_encoded_is_told_and_holds_nothing_up(
    journal: Journal, store: PostgresCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = await own(journal, "r", "s")

    def fail(*_args: Any) -> list[bytes]:
        monkeypatch.undo()
        raise UnicodeEncodeError("utf-8", "", 0, 1, "surrogates not allowed")

    monkeypatch.setattr(pipeline, "_row_columns", fail)
    for name in ("through the thread", "over the line"):
        await asyncio.gather(*(append(journal, claim, name) for claim in claims.values()))

    assert names(store) == names(store, "s") == ["first", "through the thread", "over the line"]


async def test_the_thread_keeps_nothing_of_what_it_has_written(journal: Journal) -> None:
    claims = await own(journal, "r")
    big = progress("r", text=BIG)
    seen = weakref.ref(big)
    await journal.append("r", [big], claim=claims["r"])
    del big

    await until(lambda: seen() is None)
