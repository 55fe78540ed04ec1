"""What a client can make the server hold: heads, bodies, answers that nobody reads, and names it gives itself."""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import httpx
import pytest
from starlette.responses import Response
from tests.support.api.served_app import ServedApp, exchange, serving_app
from tests.support.api.server_world import FAST, Api
from tests.support.progress_limit import until

from holdfast.api.http import connection
from holdfast.api.options import MAX_OPEN_BODY_BYTES

MUCH = 40_000_000
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def head_within_s() -> float:
    return 30.0


@pytest.fixture
async def served(api: Api, monkeypatch: pytest.MonkeyPatch, head_within_s: float) -> AsyncIterator[ServedApp]:
    monkeypatch.setattr(connection, "HEAD_WITHIN_S", head_within_s)

    async def send_much(_request: object) -> Response:
        return Response(b"x" * MUCH)

    api.app.add_route("/much", send_much)
    async with serving_app(api.app) as served:
        yield served


def to_head(method: str, path: str, *lines: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *lines, "", ""]).encode()


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("name", ["testclient", "127.0.0.1", "testserver"])
async def test_no_name_of_its_own_opens_a_door_to_a_client(served: ServedApp, name: str) -> None:
    request = f"GET /api/health HTTP/1.1\r\nHost: testserver\r\nX-Forwarded-For: {name}\r\nConnection: close\r\n\r\n"

    assert (await exchange(served.port, request.encode())).startswith(b"HTTP/1.1 421 ")


async def test_a_program_that_calls_the_app_in_its_own_process_names_it_as_it_likes(api: Api) -> None:
    def transport(client: str) -> httpx.ASGITransport:
        return httpx.ASGITransport(api.app, client=(client, 1))

    async def status(client: str, base_url: str, **headers: str) -> int:
        async with httpx.AsyncClient(transport=transport(client), base_url=base_url) as caller:
            return (await caller.get("/api/health", headers=headers)).status_code

    assert await status("here", "http://inside") == 200
    assert await status("here", "http://inside", Host="evil") == 421
    assert await status("here", "http://evil.example") == 421
    assert await status("203.0.113.7", "http://inside") == 421


async def test_what_a_client_says_of_whom_it_forwards_for_gives_it_no_more_attempts(served: ServedApp) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{served.port}") as client:
        answers = [
            await client.post("/api/session", json={"token": "hf_x"}, headers={"X-Forwarded-For": f"203.0.113.{n}"})
            for n in range(12)
        ]

    assert answers[-1].status_code == 429


@pytest.mark.parametrize(
    "path", ["/api/runs", "/api/workflows/validate", "/api/approvals/x", "/nowhere", "/api/health"]
)
async def test_nobody_reads_the_body_of_someone_who_is_not_logged_in(api: Api, path: str) -> None:
    read: list[int] = []

    async def body() -> AsyncIterator[bytes]:
        for number in range(9):
            read.append(number)
            yield b" " * 1_000_000

    answer = await api.nobody.post(path, content=body())

    assert answer.status_code in (401, 404, 405)
    assert read == []
    assert answer.headers["connection"] == "close"  # what was not read is not taken in afterwards either


async def test_a_refused_body_is_not_taken_in_after_the_answer(served: ServedApp) -> None:
    head = to_head("POST", "/api/runs", "Content-Length: 9000000")
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(head)

    answer = await reader.read()  # it ends although nothing of the body was sent

    writer.close()
    assert answer.startswith(b"HTTP/1.1 401 ")


async def test_a_login_has_a_small_body(api: Api) -> None:
    padding = " " * MAX_OPEN_BODY_BYTES

    big = await api.nobody.post("/api/session", content=json.dumps({"token": api.tokens["viewer"]}) + padding)
    fits = await api.nobody.post("/api/session", json={"token": api.tokens["viewer"]})

    assert (big.status_code, big.json()["code"], fits.status_code) == (413, "body_too_large", 200)


@pytest.mark.parametrize("options", [replace(FAST, max_bodies_bytes=2_000)])
async def test_all_bodies_together_have_a_limit(api: Api) -> None:
    is_sent, may_end = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b'{"text": "' + b"x" * 1_500
        is_sent.set()
        await may_end.wait()
        yield b'"}'

    first = asyncio.create_task(api.viewer.post("/api/workflows/validate", content=slow(), headers=JSON))
    await is_sent.wait()
    refused = await api.viewer.post("/api/workflows/validate", json={"text": "y" * 1_000})
    small = await api.viewer.post("/api/workflows/validate", json={"text": "y"})
    may_end.set()
    answered = await first
    after = await api.viewer.post("/api/workflows/validate", json={"text": "y" * 1_500})

    assert (refused.status_code, refused.json()["code"]) == (503, "server_busy")
    assert int(refused.headers["retry-after"]) > 0
    assert [answer.status_code for answer in (small, answered, after)] == [200, 200, 200]


def one_header() -> Iterator[bytes]:
    yield to_head("GET", "/api/health")[:-2] + b"X-Long: "
    while True:
        yield b"x" * 65_536


def many_headers() -> Iterator[bytes]:
    yield to_head("GET", "/api/health")[:-2]
    while True:
        yield b"X-More: 0123456789\r\n" * 1_000


def trailers() -> Iterator[bytes]:
    yield to_head("POST", "/api/session", "Transfer-Encoding: chunked") + b"1\r\n \r\n0\r\n"
    while True:
        yield b"X-More: 0123456789\r\n" * 1_000


def one_path() -> Iterator[bytes]:
    yield b"GET /"
    while True:
        yield b"a" * 65_536


@pytest.mark.parametrize("pieces", [one_header, many_headers, trailers, one_path])
async def test_a_head_without_end_is_refused(served: ServedApp, pieces: "type[Iterator[bytes]]") -> None:
    _reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    before, sent = resident_bytes(), 0
    try:
        for piece in pieces():
            writer.write(piece)
            await writer.drain()
            sent += len(piece)
            assert sent < 200_000_000
    except ConnectionError:
        pass
    writer.close()

    assert resident_bytes() - before < 50_000_000
    assert (await exchange(served.port, to_head("GET", "/api/health", "Connection: close"))).startswith(
        b"HTTP/1.1 200 "
    )


async def test_a_head_that_is_too_big_is_told_so(served: ServedApp) -> None:
    answer = await exchange(served.port, to_head("GET", "/api/health", "X-Long: " + "x" * 70_000))

    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b'"code": "head_too_large"' in answer
    assert b"x-content-type-options: nosniff" in answer


@pytest.mark.parametrize("head_within_s", [0.3])
@pytest.mark.parametrize("last", ["Connection: close", "Connection: keep-alive"])
async def test_a_connection_whose_answer_nobody_reads_is_cut(served: ServedApp, last: str) -> None:
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.connect(("127.0.0.1", served.port))
    plain.sendall(to_head("GET", "/much", last))
    await until(lambda: served.count_connections() == 1, "the server has the connection")

    await until(lambda: served.count_connections() == 0, "the server has let the connection go")

    plain.close()


@pytest.mark.parametrize("head_within_s", [0.3])
async def test_a_client_that_reads_gets_a_big_answer_whole(served: ServedApp) -> None:
    answer = await exchange(served.port, to_head("GET", "/much", "Connection: close"))

    assert len(answer) > MUCH


async def test_a_refused_method_names_all_that_there_are(api: Api) -> None:
    async def allow(path: str) -> str:
        return (await api.nobody.put(path)).headers["allow"]

    assert await allow("/api/session") == "DELETE, GET, POST"
    assert await allow("/api/runs") == "GET, POST"
    assert await allow("/api/runs/x") == "DELETE, GET"
    assert await allow("/api/tokens") == "GET, POST"
    assert await allow("/") == "GET, HEAD"


async def test_requests_that_are_sent_before_their_answers_are_read_do_not_pile_up(served: ServedApp) -> None:
    before = resident_bytes()
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    try:
        writer.write(to_head("GET", "/api/runs") * 20_000)
        with contextlib.suppress(ConnectionError):
            await reader.read()  # ends, for the server closes it
    finally:
        writer.close()

    assert resident_bytes() - before < 20_000_000  # it was 50 MB
    assert (await exchange(served.port, to_head("GET", "/api/health", "Connection: close"))).startswith(
        b"HTTP/1.1 200 "
    )


async def test_a_few_requests_at_once_are_answered_in_order(served: ServedApp) -> None:
    heads = [to_head("GET", f"/nowhere/{number}") for number in range(connection.MAX_WAITING_REQUESTS)]
    last = to_head("GET", "/api/health", "Connection: close")

    answers = await exchange(served.port, b"".join([*heads, last]))

    assert answers.count(b"HTTP/1.1 401 ") + answers.count(b"HTTP/1.1 404 ") == len(heads)
    assert answers.count(b"HTTP/1.1 200 ") == 1
