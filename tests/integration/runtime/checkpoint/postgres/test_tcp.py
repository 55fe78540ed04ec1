"""A server that is reached over TCP, as from another machine: what a socket of this machine's own cannot show."""

import socket
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from tests.support.postgres_server import control_server, fresh_schema, running_server
from tests.support.stores import progress, seqs

from holdfast.persistence.db import Database
from holdfast.runtime.checkpoint import PostgresCheckpointer
from holdfast.runtime.checkpoint.base import Append, Statement, prepare
from holdfast.runtime.checkpoint.postgres.session import limit_session, parse_url


@pytest.fixture(scope="module")
def tcp_server_url() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with running_server() as server_url:
        socket_folder = parse_qs(urlsplit(server_url).query)["host"][0]
        control_server(server_url, "restart", "-o", f'-h 127.0.0.1 -p {port} -k "{socket_folder}"')
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"


@pytest.fixture
def url(tcp_server_url: str) -> Iterator[str]:
    with fresh_schema(tcp_server_url) as url:
        yield url


def test_a_row_that_is_bigger_than_the_buffers_of_a_connection_is_written(url: str) -> None:
    big = b"x" * 50_000_000
    put = "INSERT INTO blobs (digest, body) VALUES (:digest, :body)"
    store = PostgresCheckpointer(url)

    store.append([Append("r", [prepare(progress("r"))], None, (Statement(put, {"digest": "d", "body": big}),))])

    assert seqs(store) == [1]
    store.close()
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT length(body) FROM blobs").fetchone() == (len(big),)


def test_both_ends_notice_a_peer_that_has_vanished_within_a_lease(url: str) -> None:
    with psycopg.connect(parse_url(url).conninfo, autocommit=True) as connection:
        connection.execute(limit_session(6.0).encode())
        with socket.socket(fileno=connection.fileno()) as ours:
            idle, count, most = socket.TCP_KEEPIDLE, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT
            here = [ours.getsockopt(socket.IPPROTO_TCP, option) for option in (idle, count, most)]
            ours.detach()
        # The server answers with what its socket has, not with what it was told.
        names = ("tcp_keepalives_idle", "tcp_keepalives_count", "tcp_user_timeout")
        there = [connection.execute(f"SELECT current_setting('{name}')".encode()).fetchone() for name in names]

    assert here == [3, 3, 6000]
    assert there == [("3",), ("3",), ("6000",)]


async def test_the_rows_connections_have_the_same_limits(url: str) -> None:
    db = Database(url)
    async with db.session() as session:
        connection = await session.connection()
        raw = (await connection.get_raw_connection()).driver_connection
        assert raw is not None
        answer = await raw.execute("SELECT current_setting('tcp_user_timeout'), current_setting('lock_timeout')")
        row = await answer.fetchone()
    await db.dispose()

    assert row == ("6000", "30s")
