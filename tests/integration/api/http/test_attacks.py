"""What a stranger, a foreign page or a curious operator must not get."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text
from tests.support.api.server_world import FAST, Api
from tests.support.git_bomb import commit_bomb

from holdfast.enums import Role
from holdfast.persistence.access import create_token, list_tokens, revoke_token

TRAVERSALS = ["../../etc/passwd", "..%2f..%2fetc%2fpasswd", "/etc/passwd", "%00", "a\u0000b", "....//etc", "C:\\x", "~"]
HEADERS = ("content-security-policy", "x-content-type-options", "x-frame-options", "referrer-policy", "x-request-id")


async def test_every_answer_has_the_security_headers(api: Api) -> None:
    answers = [
        await api.nobody.get("/"),
        await api.nobody.get("/nowhere"),
        await api.nobody.get("/api/health"),
        await api.nobody.get("/api/runs"),
        await api.nobody.get("/openapi.json"),
        await api.viewer.get("/api/runs"),
        await api.operator.post("/api/runs", json={}),
        await api.nobody.get("/api/health", headers={"Host": "evil.example"}),
        await api.nobody.put("/api/runs"),
    ]

    for answer in answers:
        assert [name for name in HEADERS if name not in answer.headers] == [], answer.url
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "unsafe-inline" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_every_refusal_is_a_problem_with_a_code(api: Api) -> None:
    answers = [
        await api.nobody.get("/nowhere"),
        await api.nobody.get("/api/runs"),
        await api.viewer.post("/api/runs", json=api.body()),
        await api.operator.post("/api/runs", json=api.body(surprise=1)),
        await api.operator.post("/api/runs", content=b"{", headers={"Content-Type": "application/json"}),
        await api.nobody.put("/api/health"),
        await api.viewer.get("/api/runs", params={"limit": 0}),
        await api.viewer.get("/api/runs", params={"cursor": "!!!"}),
    ]

    assert [answer.status_code for answer in answers] == [404, 401, 403, 422, 422, 405, 422, 422]
    for answer in answers:
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert {"code", "title", "detail", "status"} <= set(problem)
        assert (problem["status"], problem["request_id"]) == (answer.status_code, answer.headers["x-request-id"])


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8000", "", "0.0.0.0"]
)
async def test_a_foreign_host_is_refused(api: Api, host: str) -> None:
    answer = await api.admin.get("/api/runs", headers={"Host": host})

    assert (answer.status_code, answer.json()["code"]) == (421, "host_not_allowed")


async def test_a_foreign_origin_may_change_nothing(api: Api) -> None:
    foreign = [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:8001"},
        {"Origin": "https://127.0.0.1:8000"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ]
    refused = [await api.operator.post("/api/runs", json=api.body(), headers=headers) for headers in foreign]
    ours = await api.operator.post(
        "/api/runs", json=api.body(), headers={"Origin": "http://127.0.0.1:8000", "Sec-Fetch-Site": "same-origin"}
    )
    preflight = await api.nobody.request("OPTIONS", "/api/runs", headers={"Origin": "https://evil.example"})

    assert {answer.status_code for answer in refused} == {403}
    assert ours.status_code == 202
    assert "access-control-allow-origin" not in preflight.headers


async def test_missing_wrong_expired_and_revoked_tokens(api: Api) -> None:
    server = await api.app.state.holder.get()
    expired = await create_token(server.journal, name="old", role=Role.ADMIN, expires_at="2020-01-01T00:00:00.000Z")
    revoked = await create_token(server.journal, name="gone", role=Role.ADMIN)
    await revoke_token(server.db, server.journal, revoked.token_id, by="admin")
    right = api.tokens["admin"]
    wrong = [expired.token, revoked.token, right[:-1], f"{right}x", "x", "hf__", "", "hf_" + "0" * 12 + "_x"]

    for token in wrong:
        answer = await api.nobody.get("/api/runs", headers={"Authorization": f"Bearer {token}"})
        assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated")
    basic = await api.nobody.get("/api/health", headers={"Authorization": "Basic eDp5"})
    assert basic.status_code == 200


async def test_many_wrong_tokens_slow_an_address_down(api: Api) -> None:
    for _ in range(10):
        await api.nobody.post("/api/session", json={"token": "hf_wrong"})

    answer = await api.nobody.post("/api/session", json={"token": "hf_wrong"})
    right = await api.nobody.post("/api/session", json={"token": api.tokens["viewer"]})

    assert (answer.status_code, answer.json()["code"]) == (429, "too_many_attempts")
    assert int(answer.headers["retry-after"]) > 0
    assert right.status_code == 200


@pytest.mark.parametrize("options", [replace(FAST, wrong_tokens_per_minute=15)])
async def test_programs_may_be_wrong_more_often_than_logins(api: Api) -> None:
    wrong = {"Authorization": "Bearer hf_wrong"}

    answers = [(await api.nobody.get("/api/runs", headers=wrong)).status_code for _ in range(16)]

    assert answers == [401] * 15 + [429]


async def test_only_a_hash_of_a_token_is_stored(api: Api) -> None:
    secret = api.tokens["admin"].split("_", 2)[2]
    await api.admin.get("/api/runs")

    stored = b"".join(path.read_bytes() for path in api.config.data_dir.glob("holdfast.db*"))

    assert secret.encode() not in stored
    server = await api.app.state.holder.get()
    assert {row.name for row in await list_tokens(server.db) if row.last_used_at} == {"admin"}


async def test_tokens_are_made_listed_and_revoked_over_http(api: Api) -> None:
    made = await api.admin.post("/api/tokens", json={"name": "ci", "role": "operator", "expires_in_days": 1})
    assert made.status_code == 201
    async with api.client(made.json()["token"]) as ci:
        before = await ci.get("/api/session")
        gone = await api.admin.delete(f"/api/tokens/{made.json()['id']}")
        after = await ci.get("/api/session")

    listed = (await api.admin.get("/api/tokens")).json()["items"]
    assert (before.json()["name"], gone.status_code, after.status_code) == ("ci", 200, 401)
    assert [(item["revoked_by"], item["created_by"]) for item in listed if item["name"] == "ci"] == [("admin", "admin")]
    server = await api.app.state.holder.get()
    kinds = [event.kind for event in await server.journal.read("holdfast-access")]
    assert kinds[-2:] == ["token.created", "token.revoked"]


async def test_a_login_makes_a_new_session_and_ends_the_old_one(api: Api) -> None:
    fixed = {"Cookie": "holdfast_session=chosen-by-an-attacker"}
    first = await api.nobody.post("/api/session", json={"token": api.tokens["operator"]}, headers=fixed)
    cookie = first.headers["set-cookie"]
    assert all(part in cookie for part in ("HttpOnly", "SameSite=strict", "Path=/"))
    assert "chosen" not in cookie
    one = cookie.split(";")[0]

    second = await api.nobody.post("/api/session", json={"token": api.tokens["viewer"]}, headers={"Cookie": one})
    two = second.headers["set-cookie"].split(";")[0]

    async def status(session: str) -> int:
        return (await api.client().get("/api/session", headers={"Cookie": session})).status_code

    assert (await status(one), await status(two), await status(fixed["Cookie"])) == (401, 200, 401)
    await api.client().delete("/api/session", headers={"Cookie": two})
    assert await status(two) == 401


async def test_a_session_ends_with_the_token_it_began_with(api: Api) -> None:
    made = (await api.admin.post("/api/tokens", json={"name": "page", "role": "viewer"})).json()
    login = await api.client().post("/api/session", json={"token": made["token"]})
    cookie = {"Cookie": login.headers["set-cookie"].split(";")[0]}

    await api.admin.delete(f"/api/tokens/{made['id']}")

    assert (await api.client().get("/api/session", headers=cookie)).status_code == 401


async def test_a_session_and_a_link_are_over_after_their_time(api: Api) -> None:
    from holdfast.api.http import auth

    login = await api.client().post("/api/session", json={"token": api.tokens["viewer"]})
    cookie = {"Cookie": login.headers["set-cookie"].split(";")[0]}
    server = await api.app.state.holder.get()
    code = await api.app.state.access.create_link(server, auth.Identity("me", Role.ADMIN))
    before = (await api.client().get("/api/session", headers=cookie)).status_code
    async with server.db.session() as session:
        await session.execute(text("UPDATE sessions SET expires_at = '2020-01-01T00:00:00.000Z'"))
        await session.commit()
    after = (await api.client().get("/api/session", headers=cookie)).status_code
    link = await api.client().get("/login", params={"code": code})

    assert f"Max-Age={12 * 3600}" in login.headers["set-cookie"]
    assert (before, after, link.status_code) == (200, 401, 401)


async def test_a_login_link_works_once(api: Api) -> None:
    from holdfast.api.http.auth import Identity

    server = await api.app.state.holder.get()
    code = await api.app.state.access.create_link(server, Identity("me", Role.ADMIN))

    first = await api.client().get("/login", params={"code": code})
    again = await api.client().get("/login", params={"code": code})
    cookie = {"Cookie": first.headers["set-cookie"].split(";")[0]}

    assert (first.status_code, first.headers["location"], again.status_code) == (303, "/", 401)
    assert (await api.client().get("/api/session", headers=cookie)).json()["role"] == "admin"


@pytest.mark.parametrize("place", TRAVERSALS)
async def test_no_parameter_becomes_a_path(api: Api, place: str) -> None:
    run_id = await api.start()
    await api.wait_for(run_id)

    paths = [f"/api/runs/{place}", f"/api/runs/{place}/report", f"/api/runs/{run_id}/artifacts/{place}"]
    answers = [await api.admin.get(path.replace("\0", "%00")) for path in paths]
    answers.append(await api.admin.get(f"/api/runs/{run_id}/diff", params={"phase": place}))
    answers.append(await api.admin.post(f"/api/approvals/{place.replace(chr(0), '%00')}", json={"action": "approve"}))

    assert {answer.status_code for answer in answers} <= {404, 405, 409, 422}
    assert not any("root:" in answer.text for answer in answers)


async def test_a_repository_outside_the_root_is_refused(api: Api, tmp_path: Path) -> None:
    link = api.repo.parent / "link"
    link.symlink_to("/etc")
    outside = ["/etc", "/", "..", "repo", str(link), f"{api.repo}/../../data", f"{api.repo}/../../../etc", "~", "~root"]

    answers = [await api.operator.post("/api/runs", json=api.body(repo_path=path)) for path in outside]
    listings = [await api.viewer.get("/api/workflows", params={"repo_path": path}) for path in outside]

    assert {(answer.status_code, answer.json()["code"]) for answer in [*answers, *listings]} == {
        (403, "repository_not_allowed")
    }


async def test_a_workflow_file_outside_the_repository_is_not_opened(api: Api) -> None:
    secret = api.repo.parent / "secret.yaml"
    secret.write_text("password: hunter2")
    (api.repo / "link.yaml").symlink_to(secret)
    files = [str(secret), "../secret.yaml", "link.yaml", "/etc/passwd", "a/b"]

    answers = [await api.operator.post("/api/runs", json=api.body(workflow=file)) for file in files]

    assert {answer.status_code for answer in answers} == {403}
    assert not any("hunter2" in answer.text for answer in answers)


async def test_a_body_over_ten_megabytes_is_refused(api: Api) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(11):
            yield b" " * 1_000_000

    declared = await api.operator.post("/api/runs", content=b" " * 10_000_001)
    chunked = await api.operator.post("/api/runs", content=chunks())
    fits = await api.operator.post("/api/runs", json=api.body(requirements_md="x" * 9_000_000))

    assert (declared.status_code, chunked.status_code) == (413, 413)
    assert fits.status_code == 202


@pytest.mark.parametrize("options", [replace(FAST, body_timeout_s=0.5)])
async def test_a_body_that_never_comes_is_given_up(api: Api) -> None:
    async def never() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    answer = await api.operator.post("/api/runs", content=never())

    assert (answer.status_code, answer.json()["code"]) == (408, "body_too_slow")


async def test_a_request_id_cannot_carry_a_header(api: Api) -> None:
    answer = await api.nobody.get("/api/health", headers={"X-Request-ID": "abc-1.2_3"})
    replaced = await api.nobody.get("/api/health", headers={"X-Request-ID": "a b; Set-Cookie: x=1"})

    assert answer.headers["x-request-id"] == "abc-1.2_3"
    assert "Set-Cookie" not in replaced.headers["x-request-id"]


async def test_script_in_every_text_field_comes_back_as_data_only(api: Api) -> None:
    script = "<script>alert(1)</script>"
    run_id = await api.start(title=script, requirements_md=script)
    await api.operator.post(f"/api/runs/{run_id}/abort", json={"reason": script})
    await api.wait_for(run_id)

    answers = [
        await api.viewer.get("/api/runs"),
        await api.viewer.get(f"/api/runs/{run_id}"),
        await api.viewer.get(f"/api/runs/{run_id}/report"),
        await api.viewer.get(f"/api/runs/{run_id}/report", params={"format": "md"}),
        await api.viewer.get(f"/api/runs/{run_id}/events"),
    ]

    for answer in answers:
        assert not answer.headers["content-type"].startswith(("text/html", "image/svg", "application/xhtml"))
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert "attachment" in answers[2].headers["content-disposition"]


@pytest.mark.parametrize(
    "text", ['{"requirements_md": "\\ud800"}', '{"title": "a\\u0000b"}', '{"budget_usd": NaN}', '{"budget_usd": 1e400}']
)
async def test_odd_values_are_refused_not_stumbled_over(api: Api, text: str) -> None:
    body = json.dumps(api.body())[:-1] + ", " + text[1:]

    answer = await api.operator.post("/api/runs", content=body, headers={"Content-Type": "application/json"})

    assert answer.status_code == 422
    assert "nested" not in answer.text


async def test_deep_nesting_is_refused(api: Api) -> None:
    body = "[" * 100_000 + "]" * 100_000

    answer = await api.operator.post("/api/runs", content=body, headers={"Content-Type": "application/json"})

    assert answer.status_code in (400, 422)


async def test_a_guessed_id_tells_nothing_but_that_it_is_unknown(api: Api) -> None:
    run_id = await api.start()
    guesses = [run_id[:8], run_id[:-1] + "0", "%", "_" * 36, "*"]

    answers = [await api.viewer.get(f"/api/runs/{guess}") for guess in guesses if guess != run_id]

    assert {answer.status_code for answer in answers} == {404}


@pytest.mark.parametrize(
    "change",
    [
        {"simulate": 0},
        {"simulate": "no"},
        {"unsandboxed": 0},
        {"unsandboxed": 1},
        {"budget_usd": True},
        {"budget_usd": "5"},
    ],
)
async def test_a_switch_is_true_or_false_and_an_amount_a_number(api: Api, change: dict[str, object]) -> None:
    answer = await api.operator.post("/api/runs", json=api.body(**change))

    assert (answer.status_code, answer.json()["code"]) == (422, "request_invalid")


async def test_a_commit_of_a_billion_files_is_refused_and_nothing_is_made(api: Api) -> None:
    commit_bomb(api.repo, 9)

    answer = await api.operator.post("/api/runs", json=api.body(base_branch="bomb"))

    assert (answer.status_code, answer.json()["code"]) == (409, "workspace_too_large")
    assert (await api.viewer.get("/api/runs")).json()["items"] == []


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"base_branch": "nope"}, 422, "base_branch_missing"),
        ({"repo_path": ".git"}, 409, "workspace_error"),
        ({"repo_path": ".git/refs/heads"}, 409, "workspace_error"),
        ({"repo_path": "x" * 300}, 409, "repository_missing"),
        ({"repo_path": "\u00fc" * 200}, 409, "repository_missing"),
        ({"workflow": "x" * 300 + ".yaml"}, 422, "template_invalid"),
    ],
)
async def test_a_run_that_could_never_start_is_not_made(
    api: Api, change: dict[str, str], status: int, code: str
) -> None:
    place = {"repo_path": str(api.repo / change.pop("repo_path", "."))}
    workflow = "spec-and-review" if place["repo_path"] != str(api.repo) else "notes"

    answer = await api.operator.post(
        "/api/runs", json=api.body(workflow=change.pop("workflow", workflow), **change, **place)
    )
    preview = await api.operator.post("/api/runs/preview", json=api.body(workflow=workflow, **change, **place))
    listings = [await api.viewer.get(f"/api/{kind}", params=place) for kind in ("personas", "workflows")]

    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert (await api.viewer.get("/api/runs")).json()["items"] == []
    assert preview.status_code == 200
    assert {listing.status_code for listing in listings} <= {200, 409}
