"""Appends on their way when an answer, a connection or a commit is lost: each is written once and in order."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable

import psycopg
import pytest
from tests.support.network import Wire
from tests.support.postgres_runs import append, names, own
from tests.support.progress_limit import until
from tests.support.stores import seqs

from holdfast.errors import StoreBusy, StoreError
from holdfast.runtime.checkpoint import PostgresCheckpointer
from holdfast.runtime.checkpoint.base import Claim
from holdfast.runtime.checkpoint.postgres import session
from holdfast.runtime.journal import Journal

Sql = Callable[..., list[tuple[object, ...]]]
OpenStore = Callable[..., PostgresCheckpointer]


async def test_a_statement_that_went_well_counts_for_nothing_until_its_commit_has(
    journal: Journal, store: PostgresCheckpointer, sql: Sql, sent: list[int]
) -> None:
    claims = await own(journal, "r", "s")
    sql("""CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.body LIKE '%poison%' THEN RAISE EXCEPTION 'refused at the end'; END IF; RETURN NULL; END $$""")
    sql("""CREATE CONSTRAINT TRIGGER at_the_end AFTER INSERT ON events DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION refuse()""")

    with pytest.raises(StoreError, match="refused at the end"):
        await append(journal, claims["r"], "poison")
    await append(journal, claims["r"], "good")
    await append(journal, claims["s"], "good")

    assert sent[0] == 1
    assert names(store) == names(store, "s") == ["first", "good"]


async def test_an_answer_that_was_lost_after_the_commit_is_found_out(
    far_journal: Journal, wire: Wire, open_store: OpenStore, sent: list[int]
) -> None:
    claims = await own(far_journal, "r", "s")
    other = open_store()
    wire.keep_answers()
    waiting = asyncio.gather(*(append(far_journal, claim, "ours") for claim in claims.values()))
    await until(lambda: len(wire.answers) and len(seqs(other)) == 2)
    wire.cut()
    stored = await waiting

    assert sent == [2]
    assert names(other) == names(other, "s") == ["first", "ours"]
    assert other.list_events("r", 1) == [stored[0]]
    while not far_journal._sender.pipeline_route.pipeline:
        await append(far_journal, claims["r"], "by the thread, until there is another line")
    await append(far_journal, claims["r"], "over a new line")
    assert len(sent) > 1


async def test_a_neighbour_that_is_deleted_does_not_hide_that_a_batch_was_written(
    far_journal: Journal, wire: Wire, open_store: OpenStore
) -> None:
    claims = await own(far_journal, "r", "s")
    other = open_store()
    wire.keep_answers()
    waiting = asyncio.gather(*(append(far_journal, claim, "ours") for claim in claims.values()))
    await until(lambda: len(wire.answers) and len(seqs(other, "s")) == 2)
    other.delete_run("r")
    wire.cut()
    await waiting

    assert names(other, "s") == ["first", "ours"]
    assert seqs(other) == []


async def test_an_error_while_the_fate_of_a_batch_is_open_says_so(
    far_journal: Journal, wire: Wire, open_store: OpenStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = await own(far_journal, "r")
    wire.keep_questions()
    waiting = asyncio.create_task(append(far_journal, claims["r"], "ours"))
    await until(lambda: b"ours" in wire.questions)
    monkeypatch.setattr(session, "LOCK_WAIT_S", 0.2)
    with psycopg.connect(url) as holder:
        holder.execute("SELECT * FROM journal_runs FOR UPDATE")
        wire.cut()
        with pytest.raises(StoreBusy) as refused:
            await waiting
    assert refused.value.facts["may_be_written"] is True
    wire.deliver_questions(b"ours")
    await until(lambda: len(seqs(open_store())) == 2)


async def test_an_answer_is_found_even_if_the_loop_does_not_tell_of_it(journal: Journal) -> None:
    claims = await own(journal, "r")
    pipeline = journal._sender.pipeline_route.pipeline
    assert pipeline is not None
    asyncio.get_running_loop().remove_reader(pipeline.fileno())

    await append(journal, claims["r"], "told by nobody")


async def test_a_line_that_is_lost_while_idle_is_opened_by_the_next_append(
    journal: Journal, store: PostgresCheckpointer, sql: Sql
) -> None:
    claims = await own(journal, "r")
    await append(journal, claims["r"], "over the line")
    sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holdfast'")
    await until(lambda: journal._sender.pipeline_route.pipeline is None)
    await asyncio.sleep(0.1)
    assert (journal._sender.pipeline_route.pipeline, journal._sender.pipeline_route._opening) == (None, None)

    await append(journal, claims["r"], "next")
    await until(lambda: journal._sender.pipeline_route.pipeline)
    assert names(store) == ["first", "over the line", "next"]


async def test_a_statement_that_arrives_after_it_was_given_up_writes_nothing(
    far_journal: Journal, wire: Wire, open_store: OpenStore, sent: list[int]
) -> None:
    claims = await own(far_journal, "r", "s")
    other = open_store()
    wire.keep_questions()
    waiting = asyncio.gather(*(append(far_journal, claim, "ours") for claim in claims.values()))
    await until(lambda: b"ours" in wire.questions)
    wire.cut()
    await waiting
    wire.deliver_questions(b"ours")
    await until(lambda: b"SELECT" in wire.answers)  # the late statement was carried out, and has found nothing to do

    assert sent == [2]
    assert names(other) == names(other, "s") == ["first", "ours"]


async def test_a_statement_that_still_waits_for_a_lock_when_it_is_given_up_is_written_once(
    far_journal: Journal, wire: Wire, open_store: OpenStore, url: str, sent: list[int]
) -> None:
    claims = await own(far_journal, "r")
    with psycopg.connect(url) as holder:
        holder.execute("SELECT * FROM journal_runs FOR UPDATE")
        waiting = asyncio.create_task(append(far_journal, claims["r"], "ours"))
        await until(lambda: sent)
        await asyncio.sleep(0.05)
        wire.cut()
        await asyncio.sleep(0.05)
        assert not waiting.done()
    await waiting

    assert names(open_store()) == ["first", "ours"]


async def test_lines_ended_at_random_moments_lose_double_and_disorder_nothing(
    journal: Journal, open_store: OpenStore, sql: Sql, sent: list[int]
) -> None:
    pick = random.Random(seed := random.randrange(1_000_000))
    print(f"seed {seed}")
    claims = await own(journal, *(f"r{number}" for number in range(40)))
    is_done = False
    acknowledged: list[tuple[str, int, int]] = []

    async def write(claim: Claim) -> None:
        number = 0
        while not is_done:
            number += 1
            stored = await append(journal, claim, number)
            acknowledged.append((claim.run_id, stored.seq, number))

    writers = [asyncio.create_task(write(claim)) for claim in claims.values()]
    for _ in range(15):
        if pick.random() < 0.7:
            await until(lambda: journal._sender.pipeline_route.pipeline)
        await asyncio.sleep(pick.uniform(0, 0.1))
        before = len(acknowledged)
        sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holdfast'")
        await until(lambda before=before: len(acknowledged) > before)  # type: ignore[misc]
    await until(lambda: journal._sender.pipeline_route.pipeline)
    is_done = True
    await asyncio.gather(*writers)

    other = open_store()
    stored = [(run_id, e.seq, e.payload["name"]) for run_id in claims for e in other.list_events(run_id, 1)]
    assert Counter(stored) == Counter(acknowledged)
    for run_id in claims:
        assert names(other, run_id) == ["first", *range(1, len(names(other, run_id)))]
    assert len(sent) > 20
