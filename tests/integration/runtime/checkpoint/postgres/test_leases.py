"""F4: leases are renewed past whatever the process is busy with; without them nothing new begins."""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from tests.support.postgres_runs import append, own
from tests.support.postgres_server import control_server
from tests.support.progress_limit import until, wait_until
from tests.support.stores import progress, start_python

from holdfast.errors import LeaseLost, RunBusy
from holdfast.runtime.checkpoint import PostgresCheckpointer, process_owner
from holdfast.runtime.checkpoint.base import Claim
from holdfast.runtime.journal import Journal
from holdfast.runtime.records import Records
from holdfast.runtime.run_log import RunLog
from holdfast.runtime.step import Step, Stopped

Sql = Callable[..., list[tuple[object, ...]]]
OpenStore = Callable[..., PostgresCheckpointer]
ELSEWHERE = process_owner.Owner("other-host", "boot", "ns", os.getpid(), "1", "token").to_text()


def read_lease(sql: Sql, run_id: str) -> object:
    return sql("SELECT lease_until FROM journal_runs WHERE run_id = %s", run_id)[0][0]


def wait_for_renewals(sql: Sql, run_id: str, count: int = 3) -> None:
    seen = {read_lease(sql, run_id)}

    def is_renewed() -> bool:
        seen.add(read_lease(sql, run_id))
        return len(seen) > count

    wait_until(is_renewed, f"the lease of {run_id} is renewed")


def test_f4_a_claim_that_waits_for_a_locked_row_costs_no_other_run_its_lease(
    open_store: OpenStore, url: str, sql: Sql
) -> None:
    store = open_store(lease_s=0.6)
    store.save_event(progress("locked"))
    store.claim("mine")
    store.claim("also mine")
    with psycopg.connect(url) as stranger:
        stranger.execute("SELECT * FROM journal_runs WHERE run_id = 'locked' FOR UPDATE")
        claiming = threading.Thread(target=store.claim, args=("locked",))
        claiming.start()
        wait_until(lambda: sql("SELECT 1 FROM pg_locks WHERE NOT granted"))

        wait_for_renewals(sql, "mine")
        stranger.execute("SELECT * FROM journal_runs WHERE run_id = 'also mine' FOR UPDATE")
        wait_for_renewals(sql, "mine")
        with pytest.raises(RunBusy):
            open_store().claim("mine")
    claiming.join()


async def test_code_that_blocks_the_loop_does_not_lose_the_lease(open_store: OpenStore, sql: Sql) -> None:
    journal = Journal(open_store(lease_s=0.6))
    claim = await journal.claim("r")

    wait_for_renewals(sql, "r")  # the loop stands still meanwhile

    assert await append(journal, claim, "mine")
    await journal.close()


def test_a_lease_goes_by_the_servers_clock(store: PostgresCheckpointer, sql: Sql, monkeypatch: Any) -> None:
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 3600)

    store.claim("r")

    assert sql("SELECT lease_until - clock_timestamp() < interval '7 s' FROM journal_runs") == [(True,)]


async def test_who_loses_a_run_hears_of_it_and_begins_nothing_in_it(open_store: OpenStore) -> None:
    journal = Journal(open_store(lease_s=0.6))
    claim, other = await journal.claim("r"), await journal.claim("other")
    heard: list[Claim] = []
    with journal.watching_for_loss(claim, lambda: heard.append(claim)):
        open_store().claim("r", force=True)
        await until(lambda: heard)

    log = RunLog(journal, claim, Records([]))
    with pytest.raises(Stopped) as stopped:
        await log.step(Step("a"), lambda: pytest.fail("it was begun"))
    assert isinstance(stopped.value.error, LeaseLost)
    assert await RunLog(journal, other, Records([])).step(Step("a"), lambda: 1) == 1
    await journal.close()


async def test_without_postgres_a_call_in_flight_ends_and_is_recorded_and_nothing_new_begins(
    server_url: str, open_store: OpenStore
) -> None:
    store = open_store(lease_s=1.5)
    journal = Journal(store)
    claim = (await own(journal, "r"))["r"]
    log = RunLog(journal, claim, Records([]))
    calls: list[str] = []
    is_answered = asyncio.Event()

    async def call(name: str) -> str:
        calls.append(name)
        if name == "in flight":
            await is_answered.wait()
        return name

    first = asyncio.create_task(log.step(Step("first"), lambda: call("in flight")))
    await until(lambda: calls)
    await asyncio.to_thread(control_server, server_url, "stop", "-m", "immediate")
    try:
        await until(lambda: not journal.may_begin)
        is_answered.set()
        second = asyncio.create_task(log.step(Step("second"), lambda: call("new")))
        await asyncio.sleep(0)
        assert not first.done()
        assert calls == ["in flight"]
    finally:
        await asyncio.to_thread(control_server, server_url, "start")

    with pytest.raises(RunBusy):  # another machine sees leases that are over, and leaves their owners time to come back
        await asyncio.to_thread(open_store(lease_s=1.5).claim, "r")
    assert await first == "in flight"
    assert await second == "new"
    assert [event.payload.get("key") for event in store.list_events("r")] == [None, "first", "second"]
    await journal.close()


def test_who_was_cut_off_takes_nothing_from_others_who_may_have_been_cut_off_with_it(
    open_store: OpenStore, sql: Sql
) -> None:
    store, steady = open_store(lease_s=3600), open_store()
    store.save_event(progress())
    sql("UPDATE journal_runs SET owner = %s, lease_until = now() - interval '1 s'", ELSEWHERE)
    store.leases.note_outage()

    with pytest.raises(RunBusy):
        store.claim("r")

    def is_taken() -> bool:
        try:
            return bool(steady.claim("r"))
        except RunBusy:  # the server itself has only just started
            return False

    wait_until(is_taken)


def test_a_killed_owner_elsewhere_is_believed_until_its_lease_is_over_and_then_taken_over(
    url: str, open_store: OpenStore, sql: Sql
) -> None:
    code = "claim = store.claim('r'); store.save_event(progress()); print('owns', flush=True); sys.stdin.read()"
    opening = (
        "import sys; from tests.support.stores import progress\n"
        "from holdfast.runtime.checkpoint import PostgresCheckpointer; store = PostgresCheckpointer(sys.argv[1])\n"
    )
    process = start_python(opening + code, url, env={"HOLDFAST_TEST_MACHINE": "b"})
    assert process.stdout is not None
    assert process.stdout.readline() == "owns\n", process.communicate()[1]
    process.kill()
    process.communicate()
    store = open_store()
    with pytest.raises(RunBusy, match="on b"):
        store.claim("r")
    [(left_s,)] = sql("SELECT extract(epoch FROM lease_until - clock_timestamp())::float8 FROM journal_runs")
    assert left_s < 6  # type: ignore[operator]

    def is_taken() -> bool:
        with contextlib.suppress(RunBusy):
            return store.claim("r").is_takeover
        return False

    wait_until(is_taken)
