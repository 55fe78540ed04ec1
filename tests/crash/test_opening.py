"""A kill while a store is created or upgraded: the next one finds the old store or the new one, and goes on."""

import asyncio
import contextlib
import random
import sqlite3
from pathlib import Path

import psycopg
import pytest
from tests.support.crash.flow_run import NewRun
from tests.support.crash.forked_processes import Process
from tests.support.crash.points import IS_TORTURE, SEED
from tests.support.crash.store_opener import ADDED, Opening, main
from tests.support.stores import DISK_KINDS, open_store, progress, seqs

from holdfast import start_flow
from holdfast.runtime.checkpoint.postgres import schema
from holdfast.runtime.checkpoint.sqlite import schema as sqlite_schema
from holdfast.runtime.flow_filter import FlowFilter
from holdfast.runtime.flow_rows import read_page
from holdfast.runtime.stores import open_store as open_journal_store

SAMPLE = 8


def _sample(lines: int, what: str, how_many: int = SAMPLE) -> list[int]:
    everything = range(1, lines + 1)
    return list(everything) if IS_TORTURE else sorted(random.Random(f"{SEED} {what}").sample(everything, how_many))


@pytest.mark.parametrize("kind", DISK_KINDS)
def test_a_store_whose_creator_was_killed_is_created_by_the_next(kind: str, new_run: NewRun) -> None:
    lines, _ = Process(main, Opening(kind, new_run(kind).target)).wait()
    for dies_at in _sample(lines, f"create {kind}"):
        target = new_run(kind).target
        assert Process(main, Opening(kind, target, dies_at=dies_at)).wait() is None

        store = open_store(kind, target)
        before = seqs(store)
        store.save_event(progress(text="after the kill"))

        assert before in ([], [1]), f"seed {SEED}, killed at line {dies_at}"
        assert seqs(store) == [*before, len(before) + 1], f"seed {SEED}, killed at line {dies_at}"
        assert store.list_runs() == ["r"]
        store.close()


@pytest.mark.parametrize("kind", DISK_KINDS)
def test_a_store_whose_upgrader_was_killed_is_upgraded_by_the_next(kind: str, new_run: NewRun) -> None:
    lines, _ = Process(main, Opening(kind, _older_store(kind, new_run), is_newer=True)).wait()
    for dies_at in _sample(lines, f"upgrade {kind}"):
        target = _older_store(kind, new_run)
        opening = Opening(kind, target, is_newer=True)
        assert Process(main, Opening(kind, target, is_newer=True, dies_at=dies_at)).wait() is None

        was_half_done = _is_half_upgraded(kind, target)
        _, numbers = Process(main, opening).wait()

        assert not was_half_done, f"seed {SEED}, killed at line {dies_at}"
        assert numbers in ([1, 2], [1, 2, 3]), f"seed {SEED}, killed at line {dies_at}"
        assert not _is_half_upgraded(kind, target)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_store_from_before_the_index_of_flows_gets_it_whole_or_not_at_all(kind: str, new_run: NewRun) -> None:
    lines, _ = Process(main, Opening(kind, _store_without_index(kind, new_run))).wait()
    for dies_at in _sample(lines, f"index {kind}", 4):
        target = _store_without_index(kind, new_run)
        assert Process(main, Opening(kind, target, dies_at=dies_at)).wait() is None

        version, tables = _look(kind, target)
        known = sqlite_schema.VERSION if kind == "sqlite" else schema.VERSION
        assert ("flow_runs" in tables) == (version == known), f"seed {SEED}, killed at line {dies_at}"
        store = open_journal_store(target)
        rows = read_page(store, FlowFilter(), limit=9)
        store.close()
        assert [(row.run_id, row.flow, row.status) for row in rows] == [("old", "order", "pending")]


def _store_without_index(kind: str, new_run: NewRun) -> str:
    """A store with one flow that was started, as the version before the index of flows left it."""
    target = new_run(kind).target
    asyncio.run(start_flow("order", 1, run_id="old", store=target))
    if kind == "sqlite":
        with contextlib.closing(sqlite3.connect(target)) as connection:
            connection.execute("DROP TABLE flow_runs")
            connection.execute("ALTER TABLE journal_runs DROP COLUMN takeovers")
            connection.execute("PRAGMA user_version = 2")
    else:
        with psycopg.connect(target) as database:
            database.execute("DROP TABLE flow_runs")
            database.execute("ALTER TABLE journal_runs DROP COLUMN takeovers")
            database.execute("UPDATE holdfast_version SET version = 1")
    return target


def _older_store(kind: str, new_run: NewRun) -> str:
    """A store with one event, of the version before the one that `is_newer` knows."""
    target = new_run(kind).target
    store = open_store(kind, target)
    store.save_event(progress(text="from before"))
    store.close()
    if kind == "jsonl":
        (Path(target) / ".holdfast-format").unlink()  # before there were versions there was no such file
    return target


def _is_half_upgraded(kind: str, target: str) -> bool:
    """True if the store's version and its tables do not tell the same."""
    if kind == "jsonl":
        version_file = Path(target) / ".holdfast-format"
        return version_file.exists() and version_file.read_text() != "1\n"
    version, tables = _look(kind, target)
    added = [table for table in ADDED if table in tables]
    known = sqlite_schema.VERSION if kind == "sqlite" else schema.VERSION
    return added != (list(ADDED) if version == known + 1 else [])


def _look(kind: str, target: str) -> tuple[int, list[str]]:
    """Return the version that a database says it has, and the tables that it has."""
    if kind == "sqlite":
        with contextlib.closing(sqlite3.connect(target)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            return version, [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]
    with psycopg.connect(target) as database:
        (version,) = database.execute("SELECT version FROM holdfast_version").fetchone() or (0,)
        found = database.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
        return version, [name for (name,) in found]
