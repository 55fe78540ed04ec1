"""The same server over real sockets: slow heads, odd heads, what a proxy says, and how tokens are compared."""

import contextlib
import hmac
import json
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace

import httpx
import pytest
from sqlalchemy import text
from tests.support.api.served_app import exchange, serving_app
from tests.support.api.server_world import FAST, Api
from tests.support.progress_limit import until

from holdfast.api.http import connection
from holdfast.api.http.auth import COOKIE, Identity
from holdfast.api.options import ServerOptions
from holdfast.enums import Role
from holdfast.persistence import access
from holdfast.runtime.events import create_event


@pytest.fixture
def options() -> ServerOptions:
    return replace(FAST, send_timeout_s=1.0, recheck_s=0.2)


@pytest.fixture(autouse=True)
def _trusted_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_TRUSTED_PROXIES", "127.0.0.1")


@pytest.fixture
def head_within_s() -> float:
    """How long a connection may take to say what it wants."""
    return 30.0


@pytest.fixture
async def port(api: Api, monkeypatch: pytest.MonkeyPatch, head_within_s: float) -> AsyncIterator[int]:
    """The app served as `holdfast serve` does it."""
    monkeypatch.setattr(connection, "HEAD_WITHIN_S", head_within_s)
    async with serving_app(api.app) as served:
        yield served.port


@pytest.mark.parametrize("head_within_s", [0.3])
async def test_a_head_that_never_ends_is_not_waited_for(port: int) -> None:
    assert await exchange(port, b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: ") == b""


@pytest.mark.parametrize("head_within_s", [2.0])
async def test_a_connection_that_says_nothing_is_closed_and_a_stream_is_not(port: int, api: Api) -> None:
    run_id = await api.start(workflow="asking-notes")
    await api.wait_for(run_id, "paused")
    headers = {"Authorization": f"Bearer {api.tokens['viewer']}"}
    async with (
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers) as client,
        client.stream("GET", f"/api/runs/{run_id}/events") as stream,
    ):
        assert await exchange(port, b"") == b""  # by now the stream is older than that patience, too
        comments = 0
        async for line in stream.aiter_lines():
            comments += line == ": still here"
            if comments == 3:
                break
    assert comments == 3


@pytest.mark.parametrize("options", [replace(FAST, body_timeout_s=0.5)])
async def test_a_body_that_never_comes_is_given_up_on_a_real_socket(port: int, api: Api) -> None:
    head = f"POST /api/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {api.tokens['operator']}\r\n"

    answer = await exchange(port, head.encode() + b"Content-Length: 10\r\nConnection: close\r\n\r\n{")

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"code": "body_too_slow"' in answer


async def wait_for_clients(api: Api, count: int) -> None:
    server = await api.app.state.holder.get()
    await until(
        lambda: server.run_streams.count_clients() == count,
        lambda: f"{count} clients are there, not {server.run_streams.count_clients()}",
    )


async def test_a_client_that_stops_reading_is_let_go_in_time(port: int, api: Api) -> None:
    run_id = await api.start(workflow="asking-notes")
    await api.wait_for(run_id, "paused")
    server = await api.app.state.holder.get()
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.connect(("127.0.0.1", port))
    head = f"GET /api/runs/{run_id}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    plain.sendall(f"{head}Authorization: Bearer {api.tokens['viewer']}\r\n\r\n".encode())
    await wait_for_clients(api, 1)

    for _ in range(100):  # far more than the connection's buffers hold
        await server.journal.append(run_id, [create_event(run_id, "agent.progress", text="x" * 100_000)])
    await wait_for_clients(api, 0)

    plain.close()


@pytest.mark.parametrize("way", ["token", "session"])
async def test_a_stream_ends_with_the_token_it_was_opened_with(port: int, api: Api, way: str) -> None:
    run_id = await api.start(workflow="asking-notes")
    await api.wait_for(run_id, "paused")
    made = (await api.admin.post("/api/tokens", json={"name": "watcher", "role": "viewer"})).json()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=None) as client:
        if way == "session":
            await client.post("/api/session", json={"token": made["token"]})
        else:
            client.headers["Authorization"] = f"Bearer {made['token']}"
        async with client.stream("GET", f"/api/runs/{run_id}/events") as stream:
            lines = stream.aiter_lines()
            while not (await anext(lines)).startswith(": still here"):
                pass
            is_open_before = (await api.app.state.holder.get()).run_streams.count_clients()
            await api.admin.delete(f"/api/tokens/{made['id']}")
            with contextlib.suppress(httpx.RemoteProtocolError):  # it is cut off, not ended
                async for _line in lines:
                    pass
        again = await client.get(f"/api/runs/{run_id}/events")

    assert is_open_before == 1
    assert again.status_code == 401
    await wait_for_clients(api, 0)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Request-ID: a\nSet-Cookie: x=1\r\n\r\n",
        b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Request-ID: a\rSet-Cookie: x=1\r\n\r\n",
        b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        b"GET /login?code=a%0d%0aSet-Cookie:%20x=1 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
        b"POST /api/session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\n\r\nGET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ],
)
async def test_odd_heads_set_no_header_and_smuggle_no_request(port: int, head: bytes) -> None:
    answer = await exchange(port, head)

    assert b"set-cookie" not in answer.lower().partition(b"\r\n\r\n")[0]
    assert answer.count(b"HTTP/1.1 ") <= 1
    assert b"evil.example" not in answer


async def test_names_that_agents_chose_become_no_headers(api: Api) -> None:
    from holdfast.api.results import to_download_headers

    headers = to_download_headers('a"\r\nSet-Cookie: x=1; ü/../b.html')

    assert "\r" not in str(headers.values())
    assert headers["Content-Disposition"] == 'attachment; filename="a___Set-Cookie__x_1____.._b.html"'


def client_at(port: int, address: str) -> httpx.AsyncClient:
    """A client whose own address is this one; only 127.0.0.1 is believed what it says of others."""
    transport = httpx.AsyncHTTPTransport(local_address=address)
    return httpx.AsyncClient(transport=transport, base_url=f"http://127.0.0.1:{port}", headers={"Host": "127.0.0.1"})


async def log_in(port: int, api: Api, address: str = "127.0.0.1", **headers: str) -> httpx.Response:
    async with client_at(port, address) as client:
        return await client.post("/api/session", json={"token": api.tokens["viewer"]}, headers=headers)


async def test_a_cookie_is_secure_behind_tls_as_a_trusted_proxy_says_it(port: int, api: Api) -> None:
    plain = await log_in(port, api)
    forwarded = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.7"}
    behind_tls = await log_in(port, api, **forwarded)

    assert "Secure" not in plain.headers["set-cookie"]
    assert "strict-transport-security" not in plain.headers
    assert "Secure" in behind_tls.headers["set-cookie"]
    assert "strict-transport-security" in behind_tls.headers


async def test_an_origin_is_compared_with_what_the_browser_sees(port: int, api: Api) -> None:
    forwarded = {"X-Forwarded-Proto": "https"}

    ours = await log_in(port, api, **forwarded, Origin="https://127.0.0.1")
    foreign = await log_in(port, api, **forwarded, Origin="http://127.0.0.1")

    assert (ours.status_code, foreign.status_code) == (200, 403)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
async def test_a_stranger_cannot_say_that_it_came_by_tls_or_from_elsewhere(port: int, api: Api) -> None:
    forwarded = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.7"}

    claimed = await log_in(port, api, "127.0.0.2", **forwarded)
    async with client_at(port, "127.0.0.2") as client:
        answers = [
            await client.post(
                "/api/session", json={"token": "hf_x"}, headers={"X-Forwarded-For": f"203.0.113.{number}"}
            )
            for number in range(12)
        ]

    assert "Secure" not in claimed.headers["set-cookie"]
    assert answers[-1].status_code == 429  # another name for itself does not give it more tries


async def test_every_token_is_compared_once_in_constant_time(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """By structure, not by the clock: the one comparison takes no shortcuts, and is of hashes of one length."""
    compared: list[tuple[int, int]] = []

    def compare(one: str, other: str) -> bool:
        compared.append((len(one), len(other)))
        return hmac.compare_digest(one, other)

    monkeypatch.setattr(access, "hmac", SimpleNamespace(compare_digest=compare))
    server = await api.app.state.holder.get()
    made = await access.create_token(server.journal, name="t", role=Role.VIEWER)
    right = made.token
    wrong = [right[:-1], right[:-1] + ("a" if right[-1] != "a" else "b"), "hf_000000000000_x", "hf__", "", "x_y_z"]

    found = [await access.find_valid_token(server.db, token) for token in [right, *wrong]]

    assert [row is not None for row in found] == [True] + [False] * len(wrong)
    assert compared == [(64, 64)] * (1 + len(wrong))


async def test_a_login_code_is_found_by_its_hash_and_is_no_cookie(api: Api) -> None:
    server = await api.app.state.holder.get()
    code = await api.app.state.access.create_link(server, Identity("me", Role.ADMIN))
    async with server.db.session() as session:
        stored = str(list(await session.execute(text("SELECT * FROM sessions"))))

    for secret in (code, f"link:{code}", f"link%3A{code}"):
        answer = await api.client().get("/api/session", headers={"Cookie": f"{COOKIE}={secret}"})
        assert answer.status_code == 401
    assert code not in stored
    assert await access.take_link(server.db, server.journal, code[:-1]) is None
    assert await access.take_link(server.db, server.journal, code) is not None
    assert await access.take_link(server.db, server.journal, code) is None


async def test_what_a_guess_of_another_kind_of_id_tells(api: Api) -> None:
    """An approval's, a token's and an artifact's id: unknown is all that is said, to everyone who may ask."""
    run_id = await api.start(workflow="asking-notes")
    await api.wait_for(run_id, "paused")
    (waiting,) = (await api.viewer.get("/api/approvals")).json()["items"]
    guess = waiting["approval_id"][:-1]

    approval = await api.approver.post(f"/api/approvals/{guess}", json={"action": "approve"})
    token = await api.admin.delete("/api/tokens/000000000000")
    artifact = await api.viewer.get(f"/api/runs/{run_id}/artifacts/{waiting['phase_key']}x")
    below = await api.operator.post(f"/api/approvals/{waiting['approval_id']}", json={"action": "approve"})
    unknown_below = await api.operator.post(f"/api/approvals/{guess}", json={"action": "approve"})

    assert [answer.status_code for answer in (approval, token, artifact)] == [404, 404, 404]
    assert (below.status_code, below.json()["code"]) == (unknown_below.status_code, unknown_below.json()["code"])


async def test_script_in_the_fields_of_people_comes_back_as_data_only(api: Api) -> None:
    script = "<script>alert(1)</script>"
    run_id = await api.start(workflow="asking-notes", title=script)
    await api.wait_for(run_id, "paused")
    (waiting,) = (await api.viewer.get("/api/approvals")).json()["items"]
    await api.approver.post(
        f"/api/approvals/{waiting['approval_id']}", json={"action": "request_changes", "comment": script}
    )
    made = await api.admin.post("/api/tokens", json={"name": script, "role": "viewer"})
    server = await api.app.state.holder.get()
    await access.create_token(server.journal, name=script, role=Role.OPERATOR)

    answers = [
        await api.viewer.get("/api/approvals", params={"state": "all"}),
        await api.viewer.get(f"/api/runs/{run_id}"),
        await api.admin.get("/api/tokens"),
        await api.viewer.get("/api/runs", params={"text": script}),
        await api.viewer.get(f"/api/runs/{script}"),
        await api.viewer.get("/api/runs", params={"state": script}),
        await api.viewer.get(f"/{script}"),
    ]

    assert made.status_code in (201, 422)
    for answer in answers:
        assert answer.headers["content-type"].startswith(("application/json", "application/problem+json"))
        assert answer.headers["x-content-type-options"] == "nosniff"
        json.loads(answer.text)
