"""The limit: one insert per synced commit, with the stores' own drivers and nothing around them."""

import sqlite3
from collections.abc import Callable

from benchmarks.measure import Place, Reading, payload, reading


def row() -> bytes:
    """As many bytes as holdfast stores for a step: kind, body and hash."""
    from holdfast.runtime.events import create_event, to_body

    body, _ = to_body(create_event("r" * 32, "step.completed", key="step#1000", result=payload(1000)))
    return body + b"step.completed" + bytes(32)


def open_sqlite(place: Place) -> Callable[[], object]:
    connection = sqlite3.connect(place.folder / "raw.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, body BLOB NOT NULL)")
    body = row()
    return _warm(lambda: connection.execute("INSERT INTO rows (body) VALUES (?)", (body,)))


def open_postgres(place: Place) -> Callable[[], object]:
    import psycopg

    connection = psycopg.connect(place.url, autocommit=True)
    connection.execute("CREATE TABLE rows (number bigserial PRIMARY KEY, body bytea NOT NULL)")
    body = row()
    return _warm(lambda: connection.execute("INSERT INTO rows (body) VALUES (%b)", (body,)))


def _warm(commit: Callable[[], object]) -> Callable[[], object]:
    for _ in range(50):
        commit()
    return commit


def sqlite_commits(place: Place) -> Reading:
    commit = open_sqlite(place)
    with reading() as found:
        for _ in range(place.steps):
            commit()
    return found
