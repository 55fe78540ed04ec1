"""What the Postgres store does beyond the conformance suite: schema, rows, reading, settings, errors."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from socket import create_server
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import pytest
from tests.support.postgres_server import control_server
from tests.support.progress_limit import wait_until
from tests.support.stores import Place, finish, progress, seqs

from holdfast.errors import (
    HoldfastError,
    JournalCorrupt,
    RowRefused,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreNewer,
    StoreUnavailable,
    StoreUnreadable,
)
from holdfast.runtime import flow_rows
from holdfast.runtime.checkpoint import PostgresCheckpointer
from holdfast.runtime.checkpoint.base import Append, Statement, prepare
from holdfast.runtime.checkpoint.postgres import schema
from holdfast.runtime.events import create_event
from holdfast.runtime.flow_filter import FlowFilter

Sql = Callable[..., list[tuple[object, ...]]]
OpenStore = Callable[..., PostgresCheckpointer]


def one(run_id: str = "r", *rows: Statement, epoch: int | None = None, **payload: object) -> Append:
    return Append(run_id, [prepare(progress(run_id, **payload))], epoch, rows)


# -- opening ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg", "postgresql+asyncpg"])
def test_every_spelling_of_the_url_opens_the_same_store(url: str, scheme: str) -> None:
    spelled = url.replace("postgresql", scheme, 1)

    store = PostgresCheckpointer(spelled)
    store.save_event(progress())
    store.close()

    again = PostgresCheckpointer(url)
    assert seqs(again) == [1]
    again.close()


@pytest.mark.parametrize(
    "bad", ["holdfast.db", "mysql://u:s3cret@h/d", "postgresql://u:s3cret%zz@h/d", "postgresql://u:s3cret@h:port/d"]
)
def test_a_url_that_cannot_be_read_is_refused_without_its_password(bad: str) -> None:
    with pytest.raises(StoreUnreadable) as refused:
        PostgresCheckpointer(bad)

    assert refused.value.hint
    assert "s3cret" not in _everything(refused.value)


def _everything(error: BaseException | None) -> str:
    return "" if error is None else f"{error!r} {error} {_everything(error.__cause__)} {_everything(error.__context__)}"


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    with pytest.raises(StoreUnavailable) as refused:
        PostgresCheckpointer(f"postgresql://u:s3cret@127.0.0.1:{port}/d")

    assert "s3cret" not in _everything(refused.value)
    assert refused.value.hint


def test_a_server_that_is_not_postgres_is_unreadable() -> None:
    with create_server(("127.0.0.1", 0)) as web:

        def answer() -> None:
            with contextlib.suppress(OSError):  # until the test closes the socket
                while True:
                    with web.accept()[0] as client:
                        client.recv(1024)
                        client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(StoreUnreadable):
            PostgresCheckpointer(f"postgresql://u@127.0.0.1:{web.getsockname()[1]}/d?connect_timeout=5")


def test_a_database_that_does_not_exist_is_unreadable(server_url: str) -> None:
    with pytest.raises(StoreUnreadable, match="nowhere"):
        PostgresCheckpointer(urlunsplit(urlsplit(server_url)._replace(path="/nowhere")))


@pytest.fixture
def guarded(server_url: str, sql: Sql) -> Iterator[str]:
    """A role that needs its password and may not create tables."""
    (hba,) = sql("SHOW hba_file")[0]
    with open(str(hba)) as file:
        before = file.read()
    sql("CREATE ROLE guarded LOGIN PASSWORD 's3cret'")
    with open(str(hba), "w") as file:
        file.write("local all guarded scram-sha-256\n" + before)
    sql("GRANT USAGE ON SCHEMA {} TO guarded".format(*sql("SELECT current_schema()")[0]))
    control_server(server_url, "restart")  # a reload would reach the server's processes only a moment later
    yield "guarded"
    with open(str(hba), "w") as file:
        file.write(before)
    sql("SELECT pg_reload_conf()")
    sql("DROP OWNED BY guarded")
    sql("DROP ROLE guarded")


def test_a_wrong_password_is_unreadable_and_stays_secret(url: str, guarded: str) -> None:
    wrong = url.replace("postgres:@", f"{guarded}:wr0ng@", 1)

    with pytest.raises(StoreUnreadable, match="authentication failed") as refused:
        PostgresCheckpointer(wrong)

    assert "wr0ng" not in _everything(refused.value)


def test_a_role_that_may_not_create_tables_is_told_so(url: str, guarded: str) -> None:
    with pytest.raises(StoreUnreadable, match="permission denied") as refused:
        PostgresCheckpointer(url.replace("postgres:@", f"{guarded}:{quote('s3cret')}@", 1))

    assert "s3cret" not in _everything(refused.value)


def test_a_newer_store_is_left_alone(url: str, sql: Sql) -> None:
    PostgresCheckpointer(url).close()
    sql("UPDATE holdfast_version SET version = 99, oldest = 99")

    with pytest.raises(StoreNewer, match="99"):
        PostgresCheckpointer(url)

    assert sql("SELECT version FROM holdfast_version") == [(99,)]


def test_tables_of_another_program_are_not_adopted(url: str, sql: Sql) -> None:
    sql("CREATE TABLE events (id int)")

    with pytest.raises(StoreUnreadable, match="another program"):
        PostgresCheckpointer(url)

    assert sql("SELECT to_regclass('holdfast_version') IS NULL") == [(True,)]


def test_a_database_that_cannot_hold_every_text_is_refused(server_url: str) -> None:
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE hf_latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        try:
            with pytest.raises(StoreUnreadable, match="LATIN1"):
                PostgresCheckpointer(urlunsplit(urlsplit(server_url)._replace(path="/hf_latin")))
        finally:
            connection.execute("DROP DATABASE hf_latin WITH (FORCE)")


def test_eight_processes_create_one_store_at_once(place: Place) -> None:
    processes = [place.start_process("store.save_event(progress(who=args[0]))", number) for number in range(8)]

    for process in processes:
        finish(process)

    assert seqs(place.open()) == list(range(1, 9))


def test_a_store_created_while_another_waits_to_create_it_is_seen(url: str, sql: Sql) -> None:
    opened: list[PostgresCheckpointer] = []
    opening = threading.Thread(target=lambda: opened.append(PostgresCheckpointer(url)))
    with psycopg.connect(url, autocommit=True) as creator:
        creator.execute("SELECT pg_advisory_lock(%s)", (schema._LOCK,))
        opening.start()
        wait_until(lambda: sql("SELECT 1 FROM pg_locks WHERE NOT granted") != [])
        schema._apply(creator, 0)
    opening.join()

    assert opened[0].save_event(progress()).seq == 1
    opened[0].close()


def test_a_kill_while_the_store_is_created_leaves_nothing(place: Place, sql: Sql) -> None:
    process = place.start_process("")
    finish(process)
    for table in ("events", "journal_runs", "blobs", "blob_refs", "snapshots", "flow_runs", "holdfast_version"):
        sql(f"DROP TABLE {table}")
    dying = subprocess.Popen([sys.executable, "-c", DIES_CREATING, place.target], stderr=subprocess.PIPE)
    dying.communicate()

    store = place.open()

    assert dying.returncode == -signal.SIGKILL
    assert store.save_event(progress()).seq == 1


DIES_CREATING = """
import os, signal, sys
from holdfast.runtime import flow_rows
from holdfast.runtime.flow_filter import FlowFilter
from holdfast.runtime.checkpoint import PostgresCheckpointer
from holdfast.runtime.checkpoint.postgres import schema

apply = schema._apply
def apply_and_die(connection, found):
    apply(connection, found)
    os.kill(os.getpid(), signal.SIGKILL)

schema._apply = apply_and_die
PostgresCheckpointer(sys.argv[1])
"""


# -- settings the promises rest on ------------------------------------------------------------------------------------


def test_weak_defaults_do_not_count(url: str, sql: Sql) -> None:
    weak = ("synchronous_commit=off", "default_transaction_isolation=serializable", "default_transaction_read_only=on")
    store = PostgresCheckpointer(url + "".join(f"%20-c{setting.replace('=', '%3D')}" for setting in weak))
    note = Statement(
        "INSERT INTO snapshots SELECT current_setting('synchronous_commit') || ' ' "
        "|| current_setting('transaction_isolation'), 0, '', ''",
        {},
    )

    (result,) = store.append([one("r", note)])

    assert not isinstance(result, HoldfastError)
    assert sql("SELECT run_id FROM snapshots") == [("on read committed",)]
    store.close()


# -- events and rows --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["NUL \0 inside", "\u2028\u2029", "🎉👨‍👩‍👧", "e\u0301 \ufffe \uffff", "\\u0000 %s :x $1", "ﷺ" * 500]
)
def test_odd_text_comes_back_as_it_was(store: PostgresCheckpointer, text: str) -> None:
    run_id = text.replace("\0", "")[:200]

    saved = store.save_event(progress(run_id, text=text, **{text: [text]}))

    assert store.list_events(run_id) == [saved]
    assert saved.payload == {"text": text, text: [text]}
    assert store.list_runs() == [run_id]


def test_rows_and_events_are_written_together_or_not_at_all(store: PostgresCheckpointer, sql: Sql) -> None:
    sql("CREATE TABLE things (id int PRIMARY KEY, name text CHECK (name <> ''), of int REFERENCES things)")
    add = "INSERT INTO things (id, name, of) VALUES (:id, :name, :of)"
    name = "UPDATE things SET name = :name WHERE id = :id"
    batch = [
        one("good", Statement(add, {"id": 1, "name": "50 %", "of": None})),
        one(
            "same", Statement(add, {"id": 2, "name": "x", "of": None}), Statement(add, {"id": 1, "name": "x", "of": 1})
        ),
        one("empty", Statement(add, {"id": 3, "name": "", "of": None})),
        one("orphan", Statement(add, {"id": 4, "name": "x", "of": 99})),
        one("absent", Statement(name, {"id": 99, "name": "x"})),
        one("wrong", Statement("UPDATE nothing SET x = :x", {"x": 1})),
        one("nul", Statement(name, {"id": 1, "name": "\0"})),
        one("late", Statement(name, {"id": 1, "name": "named"}), Statement(name, {"id": 99, "name": "x"}, expect=None)),
    ]

    results = dict(zip([append.run_id for append in batch], store.append(batch), strict=True))

    refused = {run_id: type(result) for run_id, result in results.items() if isinstance(result, HoldfastError)}
    assert refused == {
        "same": RowRefused,
        "empty": RowRefused,
        "orphan": RowRefused,
        "absent": RowRefused,
        "wrong": StoreError,
        "nul": StoreError,
    }
    assert sql("SELECT id, name FROM things") == [(1, "named")]
    assert sorted(store.list_runs()) == ["good", "late"]


def test_a_refused_append_does_not_disturb_the_same_run_in_the_same_batch(store: PostgresCheckpointer) -> None:
    bad = Statement("UPDATE journal_runs SET owner = NULL WHERE run_id = 'nobody'", {})

    first, refused, second = store.append([one(n=1), one("r", bad, n=2), one(n=3)])

    assert isinstance(refused, RowRefused)
    assert not isinstance(first, HoldfastError)
    assert not isinstance(second, HoldfastError)
    assert [(event.seq, event.payload["n"]) for event in store.list_events("r")] == [(1, 1), (2, 3)]


def test_rows_put_there_by_others_are_counted_and_read(store: PostgresCheckpointer, sql: Sql) -> None:
    sql("INSERT INTO events (run_id, seq, type) VALUES ('r', 1, 'run.created'), ('r', 2, 'run.started')")

    saved = store.save_event(progress())

    assert saved.seq == 3
    assert [str(event.kind) for event in store.list_events("r")] == ["run.created", "run.started", "agent.progress"]


def test_an_end_is_kept_in_the_run_row(store: PostgresCheckpointer, sql: Sql) -> None:
    store.save_event(create_event("r", "run.completed"))

    store.save_event(create_event("r", "run.failed"))

    assert sql("SELECT status FROM journal_runs") == [("completed",)]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE events SET body = replace(body, 'agent', 'agenT') WHERE seq = 2",
        "UPDATE events SET type = 'other' WHERE seq = 2",
        "UPDATE events SET hash = 'x' WHERE seq = 2",
        "DELETE FROM events WHERE seq = 2",
        "DELETE FROM events WHERE seq = 3",
        "UPDATE journal_runs SET head_hash = 'x'",
    ],
)
def test_damage_is_named_with_run_and_position(store: PostgresCheckpointer, sql: Sql, damage: str) -> None:
    for _ in range(3):
        store.save_event(progress())
    sql(damage)

    with pytest.raises(JournalCorrupt, match=r"run 'r' .* event [23]"):
        store.list_events("r")

    assert store.save_event(progress("other")).seq == 1


def test_a_row_that_is_bigger_than_the_buffers_of_a_connection_is_written(
    store: PostgresCheckpointer, sql: Sql
) -> None:
    big = b"x" * 20_000_000
    put = "INSERT INTO blobs (digest, body) VALUES (:digest, :body)"

    store.append([one("r", Statement(put, {"digest": "d", "body": big}))])

    assert sql("SELECT length(body) FROM blobs") == [(len(big),)]
    assert seqs(store) == [1]


def test_a_big_value_survives_the_end_of_another_run_that_had_it(
    store: PostgresCheckpointer, url: str, sql: Sql
) -> None:
    big = "x" * 100_000
    store.save_event(progress("old", big=big))
    deleting = threading.Thread(target=store.delete_run, args=("old",))
    with psycopg.connect(url) as other:  # an append of the run "new", stopped before its COMMIT
        (digest,) = other.execute("SELECT digest FROM blobs").fetchall()[0]
        other.execute("INSERT INTO blobs VALUES (%s, '') ON CONFLICT DO NOTHING", (digest,))
        other.execute("INSERT INTO blob_refs (run_id, digest) VALUES ('new', %s)", (digest,))
        deleting.start()
        wait_until(lambda: sql("SELECT 1 FROM pg_locks WHERE NOT granted") != [])

    deleting.join()

    assert sql("SELECT length(body) FROM blobs") == [(len(big) + 2,)]
    assert store.list_events("old") == []


# -- several writers --------------------------------------------------------------------------------------------------


def test_processes_append_to_one_run_and_to_many(place: Place) -> None:
    store = place.open()
    code = """
from holdfast.runtime.checkpoint.base import Append, prepare
for n in range(25):
    runs = ["shared", f"own-{args[0]}", f"pair-{int(args[0]) // 2}", f"new-{n}"]
    batch = [Append(r, [prepare(progress(r, who=args[0], n=n))]) for r in (runs if n % 2 else runs[::-1])]
    assert all(isinstance(result, list) for result in store.append(batch))
"""
    processes = [place.start_process(code, number) for number in range(4)]

    for process in processes:
        finish(process)

    for run_id, writers in {"shared": 4, "own-0": 1, "pair-0": 2, "pair-1": 2}.items():
        events = store.list_events(run_id)
        assert [event.seq for event in events] == list(range(1, 25 * writers + 1))
        assert len({(event.payload["who"], event.payload["n"]) for event in events}) == 25 * writers


def test_threads_share_one_store(store: PostgresCheckpointer) -> None:
    def work(name: int) -> None:
        for n in range(10):
            store.save_event(progress(who=name, n=n))
            store.read_heads(["r"])

    threads = [threading.Thread(target=work, args=(name,)) for name in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert seqs(store) == list(range(1, 161))


def test_an_append_wakes_who_waits_in_another_process(place: Place, open_store: OpenStore) -> None:
    store = open_store()
    store.wait_for_change(0)  # listens from here on
    waiting = place.start_process(
        "store.wait_for_change(0); print('waits', flush=True)\n"
        "print(store.wait_for_change(30), store.read_heads(['r']))"
    )
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == "waits\n"

    store.save_event(progress())

    assert finish(waiting) == "True {'r': 1}\n"
    assert store.wait_for_change(30)
    assert not store.wait_for_change(0)


def test_closing_ends_a_wait(store: PostgresCheckpointer) -> None:
    store.wait_for_change(0)
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            store.wait_for_change(0)  # what was before it first asked counts as a change
            store.wait_for_change(60)
        except StoreUnreadable as error:
            ended.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    store.close()
    thread.join(20)

    assert not thread.is_alive()
    assert len(ended) == 1


def test_a_lock_that_is_not_to_be_had_is_a_busy_store(store: PostgresCheckpointer, url: str) -> None:
    store.save_event(progress())
    with psycopg.connect(url) as other:
        other.execute("SELECT 1 FROM journal_runs FOR UPDATE")
        with pytest.raises(StoreBusy):
            store.append([one()], wait_s=0.02)

    assert store.save_event(progress()).seq == 2


def test_a_full_disk_is_told_and_the_store_goes_on_after(store: PostgresCheckpointer, sql: Sql) -> None:
    store.save_event(progress())
    sql("""CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$""")
    sql("CREATE TRIGGER full_disk BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION fill()")
    with pytest.raises(StoreFull):
        store.save_event(progress())
    sql("DROP TRIGGER full_disk ON events")

    assert store.save_event(progress()).seq == 2


# -- processes --------------------------------------------------------------------------------------------------------


def test_a_forked_child_has_connections_of_its_own(store: PostgresCheckpointer) -> None:
    store.save_event(progress(who="parent"))
    store.read_heads(["r"])
    pid = os.fork()
    if pid == 0:
        try:
            store.save_event(progress(who="child"))
            store.close()
            os._exit(0)
        except BaseException:
            os._exit(1)

    assert os.waitpid(pid, 0)[1] == 0
    store.save_event(progress(who="parent"))
    assert [event.payload["who"] for event in store.list_events("r")] == ["parent", "child", "parent"]


def test_a_program_that_closes_nothing_ends_quietly(place: Place) -> None:
    code = "claim = store.claim('r'); store.wait_for_change(0); store.save_event(progress()); print(store.list_runs())"

    process = place.start_process(code)
    out, err = process.communicate()

    assert (process.returncode, out, err) == (0, "['r']\n", "")


def test_a_closed_store_says_so(store: PostgresCheckpointer) -> None:
    store.close()
    store.close()

    with pytest.raises(StoreUnreadable, match="closed"):
        store.save_event(progress())


def test_flows_of_an_earlier_version_are_in_the_index_after_opening(url: str) -> None:
    body = '{"kind": "run.created", "ts": 12.5, "span_id": "s", "payload": {"flow": "order", "n": "\\u0000 \\\\u0000"}}'
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in schema.UPGRADES[0]:
            connection.execute(statement)
        connection.execute("CREATE TABLE holdfast_version (is_only boolean PRIMARY KEY DEFAULT true, version integer)")
        connection.execute("INSERT INTO holdfast_version (version) VALUES (1)")
        for run_id, text in (("flow", body), ("workflow", '{"payload": {}}')):
            connection.execute("INSERT INTO events VALUES (%s, 1, 'run.created', %s, '')", (run_id, text))
            connection.execute("INSERT INTO journal_runs (run_id, status) VALUES (%s, 'running')", (run_id,))

    store = PostgresCheckpointer(url)

    (row,) = flow_rows.read_page(store, FlowFilter(), limit=10)
    assert (row.run_id, row.flow, row.status, row.created_at, row.is_driven) == ("flow", "order", "running", 12.5, True)
    store.delete_run("flow")
    assert flow_rows.read_page(store, FlowFilter(), limit=10) == []
    store.close()
