"""Who may write to a run on Postgres: the epoch as a fence, leases, owners that died or stand still."""

import contextlib
import gc
import os
import signal
import subprocess
from collections.abc import Callable

import psycopg
import pytest
from tests.support.progress_limit import wait_until
from tests.support.stores import progress, seqs, start_python

from holdfast.errors import HoldfastError, LeaseLost, RunBusy, RunIdInvalid, StoreBusy
from holdfast.runtime.checkpoint import PostgresCheckpointer, process_owner
from holdfast.runtime.checkpoint.base import Append, Claim, prepare

Sql = Callable[..., list[tuple[object, ...]]]
OpenStore = Callable[..., PostgresCheckpointer]


def append(store: PostgresCheckpointer, claim: Claim, **payload: object) -> None:
    (result,) = store.append([Append(claim.run_id, [prepare(progress(claim.run_id, **payload))], claim.epoch)])
    if isinstance(result, HoldfastError):
        raise result


def claim_when_free(store: PostgresCheckpointer, run_id: str) -> Claim:
    claims: list[Claim] = []

    def is_free() -> bool:
        with contextlib.suppress(RunBusy):
            claims.append(store.claim(run_id))
        return bool(claims)

    wait_until(is_free, f"run {run_id} is free")
    return claims[0]


OWNER = """
import os, signal, sys
from holdfast.errors import HoldfastError
from holdfast.runtime.checkpoint import PostgresCheckpointer
from holdfast.runtime.checkpoint.base import Append, prepare
from tests.support.stores import progress

store = PostgresCheckpointer(sys.argv[1], lease_s=float(sys.argv[2]))
claim = store.claim("r")

def append(**payload):
    (result,) = store.append([Append("r", [prepare(progress(**payload))], claim.epoch)])
    return result.code if isinstance(result, HoldfastError) else result[0]

append(who="owner")
print("owns", flush=True)
"""


def start_owner(url: str, code: str, lease_s: float = 15.0) -> "subprocess.Popen[str]":
    """Another process that owns the run "r" and then does `code`."""
    process = start_python(OWNER + code, url, lease_s)
    assert process.stdout is not None
    assert process.stdout.readline() == "owns\n", process.communicate()[1]
    return process


def wait_until_stopped(process: "subprocess.Popen[str]") -> None:
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)


# -- the fence --------------------------------------------------------------------------------------------------------


def test_a_zombie_is_refused_and_the_rightful_owner_and_outsiders_are_not(open_store: OpenStore) -> None:
    zombie, owner, outsider = open_store(), open_store(), open_store()
    old = zombie.claim("r")
    append(zombie, old, who="zombie")
    new = owner.claim("r", force=True)

    with pytest.raises(LeaseLost):
        append(zombie, old, who="zombie too late")
    outsider.save_event(progress(who="outsider"))
    append(owner, new, who="owner")

    assert [event.payload["who"] for event in owner.list_events("r")] == ["zombie", "outsider", "owner"]
    assert (new.head, new.epoch) == (1, old.epoch + 1)


def test_a_refused_owner_does_not_fail_its_neighbours(open_store: OpenStore) -> None:
    store = open_store()
    lost, neighbour = store.claim("lost"), store.claim("kept")
    open_store().claim("lost", force=True)

    results = store.append([Append(c.run_id, [prepare(progress(c.run_id))], c.epoch) for c in (lost, neighbour)])

    assert isinstance(results[0], LeaseLost)
    assert isinstance(results[1], list)
    assert (seqs(store, "lost"), seqs(store, "kept")) == ([], [1])


def test_a_zombie_of_a_deleted_run_does_not_meet_its_epoch_again(store: PostgresCheckpointer) -> None:
    old = store.claim("r")
    store.delete_run("r")

    new = store.claim("r")

    assert new.epoch > old.epoch


# -- one process ------------------------------------------------------------------------------------------------------


def test_a_second_claim_in_one_process_is_refused_and_names_the_owner(open_store: OpenStore) -> None:
    store = open_store()
    claim = store.claim("r")

    for other in (store, open_store()):
        with pytest.raises(RunBusy, match=f"process {os.getpid()} on "):
            other.claim("r")

    store.release(claim)
    assert open_store().claim("r").epoch == claim.epoch + 1


def test_several_claims_at_once_are_each_answered(open_store: OpenStore) -> None:
    store, other = open_store(), open_store()
    other.claim("taken")

    free, taken, bad = store.claim_many(["free", "taken", "\0"])

    assert isinstance(free, Claim)
    assert isinstance(taken, RunBusy)
    assert isinstance(bad, RunIdInvalid)
    store.release(free)
    other.claim("free")


def test_closing_or_dropping_a_store_gives_its_claims_up(url: str, store: PostgresCheckpointer, sql: Sql) -> None:
    closed = PostgresCheckpointer(url)
    closed.claim("a")
    closed.close()
    dropped = PostgresCheckpointer(url)
    dropped.claim("b")
    del dropped
    gc.collect()

    assert sql("SELECT owner FROM journal_runs") == [(None,), (None,)]
    store.claim("a")
    store.claim("b")


def test_releasing_a_lost_claim_leaves_the_new_owner_alone(open_store: OpenStore) -> None:
    zombie, owner = open_store(), open_store()
    old = zombie.claim("r")
    new = owner.claim("r", force=True)

    zombie.release(old)

    append(owner, new)
    with pytest.raises(RunBusy):
        zombie.claim("r")


# -- leases -----------------------------------------------------------------------------------------------------------


def test_owners_appends_and_signs_of_life_prolong_the_lease_and_outsiders_do_not(
    open_store: OpenStore, sql: Sql
) -> None:
    store = open_store(lease_s=3600)  # its thread does not come to renew it
    claim, other = store.claim("r"), store.claim("other")

    def lease() -> object:
        return sql("SELECT lease_until FROM journal_runs WHERE run_id = 'r'")[0][0]

    leases = [lease()]
    for prolong in (
        lambda: append(store, claim),
        lambda: store.renew([other, claim]),
        lambda: store.save_event(progress()),
        lambda: store.renew([Claim("r", claim.epoch - 1, 0)]),
    ):
        prolong()
        leases.append(lease())

    assert leases == sorted(leases)  # type: ignore[type-var]
    assert len(set(leases)) == 3


def test_a_row_that_a_stranger_has_locked_keeps_no_other_lease_from_being_prolonged(
    open_store: OpenStore, url: str, sql: Sql
) -> None:
    store = open_store(lease_s=3600)
    claims = [store.claim(run_id) for run_id in ("free", "locked")]

    def leases() -> dict[object, object]:
        return dict(sql("SELECT run_id, lease_until FROM journal_runs"))  # type: ignore[arg-type]

    before = leases()
    with psycopg.connect(url) as stranger:
        stranger.execute("SELECT * FROM journal_runs WHERE run_id = 'locked' FOR UPDATE")
        store.renew(claims)
        during = leases()
    store.renew(claims)

    assert during["free"] > before["free"]  # type: ignore[operator]
    assert during["locked"] == before["locked"]
    assert leases()["locked"] > before["locked"]  # type: ignore[operator]


def test_an_owner_elsewhere_is_believed_until_its_lease_ends(store: PostgresCheckpointer, sql: Sql) -> None:
    store.save_event(progress())
    elsewhere = process_owner.Owner("other-host", "boot", "ns", os.getpid(), "1", "token").to_text()
    sql("UPDATE journal_runs SET owner = %s, lease_until = now() + interval '1 hour'", elsewhere)
    with pytest.raises(RunBusy, match="other-host"):
        store.claim("r")
    sql("UPDATE journal_runs SET owner = 'of a later version'")
    with pytest.raises(RunBusy):
        store.claim("r")

    sql("UPDATE journal_runs SET lease_until = now()")

    assert claim_when_free(store, "r").head == 1


# -- other processes --------------------------------------------------------------------------------------------------


def test_a_living_owner_keeps_its_run_and_a_killed_one_loses_it_at_once(url: str, store: PostgresCheckpointer) -> None:
    process = start_owner(url, "sys.stdin.read()", lease_s=3600)
    with pytest.raises(RunBusy, match=f"process {process.pid} on "):
        store.claim("r")

    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet buried
    claim = store.claim("r")

    append(store, claim)
    process.communicate()
    assert seqs(store) == [1, 2]


def test_a_number_that_another_process_got_is_not_the_owner(store: PostgresCheckpointer, sql: Sql) -> None:
    mine = process_owner.new_owner()
    earlier = process_owner.Owner(mine.host, mine.boot, mine.namespace, os.getppid(), "1", "token").to_text()
    store.save_event(progress())
    sql("UPDATE journal_runs SET owner = %s, lease_until = now() + interval '1 hour'", earlier)

    assert store.claim("r").head == 1


def test_an_owner_that_stands_still_is_taken_over_and_then_refused(url: str, store: PostgresCheckpointer) -> None:
    process = start_owner(url, "sys.stdin.readline(); print(append(who='zombie'))", lease_s=1)
    process.send_signal(signal.SIGSTOP)
    wait_until_stopped(process)
    claim = claim_when_free(store, "r")
    append(store, claim, who="taker")

    process.send_signal(signal.SIGCONT)
    out, err = process.communicate("go\n")

    assert (out, err) == ("lease_lost\n", "")
    append(store, claim, who="taker")
    assert [event.payload["who"] for event in store.list_events("r")] == ["owner", "taker", "taker"]


def test_an_owner_that_stands_still_in_the_middle_of_an_append_holds_nobody_up(
    url: str, store: PostgresCheckpointer
) -> None:
    code = """
from holdfast.runtime.checkpoint.postgres.transaction import PostgresTx

write = PostgresTx.write
def stop_and_write(*args):
    PostgresTx.write = write
    os.kill(os.getpid(), signal.SIGSTOP)
    write(*args)

PostgresTx.write = stop_and_write
print(append(who="zombie"))
"""
    process = start_owner(url, code, lease_s=3)
    wait_until_stopped(process)
    with pytest.raises(StoreBusy):
        store.append([Append("r", [prepare(progress(who="nobody"))])], wait_s=0.01)
    claim = claim_when_free(store, "r")
    append(store, claim, who="taker")

    process.send_signal(signal.SIGCONT)
    out, err = process.communicate()

    assert (out, err) == ("lease_lost\n", "")
    assert [event.payload["who"] for event in store.list_events("r")] == ["owner", "taker"]


def test_connections_that_were_given_back_come_again_and_claims_are_released_at_the_end(
    open_store: OpenStore,
) -> None:
    store, other = open_store(), open_store()
    claim = store.claim("r")
    store.give_back(0.0)

    append(store, claim)
    store.give_back(0.0)
    store.close()

    assert other.claim("r").epoch == claim.epoch + 1
    assert seqs(other, "r") == [1]
