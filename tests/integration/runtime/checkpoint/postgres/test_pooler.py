"""A pooler in front of the database: sessions that do not last are noticed at once, others are as good as none."""

import contextlib

import psycopg
import pytest
from tests.support.pooler import running_pooler

from holdfast.config import load_config
from holdfast.doctor import check_all
from holdfast.errors import StoreUnreadable
from holdfast.runtime.checkpoint import PostgresCheckpointer
from holdfast.runtime.checkpoint.postgres.session import connect, parse_url


def test_a_pooler_in_transaction_mode_is_refused_with_what_to_do(server_url: str) -> None:
    with running_pooler(server_url, "transaction") as url, pytest.raises(StoreUnreadable) as refused:
        PostgresCheckpointer(url)

    assert "transaction mode" in refused.value.message
    assert "session mode" in (refused.value.hint or "")


def test_doctor_says_that_the_database_is_behind_a_pooler_in_transaction_mode(server_url: str) -> None:
    with running_pooler(server_url, "transaction") as url:
        check = next(each for each in check_all(load_config(database_url=url)) if each.name == "database")

    assert check.state == "bad"
    assert "transaction mode" in check.found
    assert "session mode" in check.remedy


def test_a_pooler_in_session_mode_is_taken_for_the_server(server_url: str) -> None:
    with running_pooler(server_url, "session") as url, contextlib.closing(connect(parse_url(url), 6.0)) as connection:
        assert connection.execute("SELECT pg_backend_pid()").fetchone() != (connection.info.backend_pid,)


def test_a_direct_connection_needs_no_second_one(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    original = psycopg.Connection.__init__
    monkeypatch.setattr(psycopg.Connection, "__init__", lambda *args: opened.append(1) or original(*args))

    connect(parse_url(url), 6.0).close()

    assert len(opened) == 1
