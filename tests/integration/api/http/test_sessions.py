"""Sessions and tokens end with the token they came from, whatever happens at the same time."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from tests.support.api.server_world import FAST, Api, open_api
from tests.support.postgres_server import fresh_schema

from holdfast import engine
from holdfast.api.http.auth import Identity
from holdfast.enums import Role
from holdfast.errors import NotAuthenticated
from holdfast.persistence.access import (
    ACCESS_JOURNAL,
    NewToken,
    create_token,
    find_valid_session,
    find_valid_token,
    find_valid_tokens,
    list_tokens,
    open_session,
    revoke_token,
)
from holdfast.persistence.db import Database
from holdfast.persistence.statements import to_time_text
from holdfast.runtime.stores import open_journal


def in_hours(hours: float) -> str:
    return to_time_text(datetime.now(UTC) + timedelta(hours=hours))


async def make_token(api: Api, *, expires_at: str | None = None) -> NewToken:
    server = await api.app.state.holder.get()
    return await create_token(server.journal, name="short", role=Role.ADMIN, expires_at=expires_at)


async def log_in(api: Api, token: str) -> tuple[httpx.Response, dict[str, str]]:
    answer = await api.client().post("/api/session", json={"token": token})
    return answer, {"Cookie": answer.headers.get("set-cookie", "").split(";")[0]}


async def test_a_session_that_races_with_the_revocation_of_its_token_does_not_outlive_it(api: Api) -> None:
    server = await api.app.state.holder.get()
    cookies = []
    for _ in range(20):
        new = await make_token(api)
        login, _revoked = await asyncio.gather(
            log_in(api, new.token), revoke_token(server.db, server.journal, new.token_id)
        )
        cookies.append(login[1])

    answers = [await api.client().get("/api/session", headers=cookie) for cookie in cookies]

    assert {answer.status_code for answer in answers} == {401}


async def test_no_session_is_opened_by_a_token_that_was_revoked_after_it_was_read(database_url: str) -> None:
    db = Database(database_url)
    await db.init_schema()
    try:
        async with open_journal(db.store) as journal:
            maker = await create_token(journal, name="maker", role=Role.ADMIN)
            options: Any = {"name": "page", "role": Role.ADMIN, "expires_at": in_hours(1)}
            early = await open_session(journal, **options, token_id=maker.token_id)
            heir = await create_token(journal, **options, by_token_id=maker.token_id)
            was_valid = await find_valid_session(db, early) is not None
            done = await revoke_token(db, journal, maker.token_id, keep_children=True)

            with pytest.raises(NotAuthenticated):
                await open_session(journal, **options, token_id=maker.token_id)
            with pytest.raises(NotAuthenticated):
                await create_token(journal, **options, by_token_id=maker.token_id)
            kinds = [str(event.kind) for event in await journal.read(ACCESS_JOURNAL)]
        assert was_valid
        assert (done.tokens, done.sessions) == (1, 1)
        assert await find_valid_session(db, early) is None
        assert await find_valid_token(db, heir.token) is not None
        assert kinds == ["token.created", "session.opened", "token.created", "token.revoked"]
    finally:
        await db.dispose()


async def test_a_session_ends_no_later_than_its_token(api: Api) -> None:
    end = in_hours(1)
    new = await make_token(api, expires_at=end)

    login, cookie = await log_in(api, new.token)

    assert login.json()["expires_at"] == end
    assert "Max-Age=36" in login.headers["set-cookie"] or "Max-Age=35" in login.headers["set-cookie"]
    assert (await api.client().get("/api/session", headers=cookie)).status_code == 200


async def test_a_session_is_over_when_its_token_is_although_its_own_row_says_otherwise(api: Api) -> None:
    server = await api.app.state.holder.get()
    new = await make_token(api, expires_at=in_hours(1))
    _login, cookie = await log_in(api, new.token)
    async with server.db.session() as session:
        past = {"past": in_hours(-1), "id": new.token_id}
        await session.execute(text("UPDATE tokens SET expires_at = :past WHERE id = :id"), past)
        await session.commit()

    seen = await api.client().get("/api/session", headers=cookie)
    made = await api.client().post("/api/tokens", json={"name": "heir", "role": "admin"}, headers=cookie)

    assert (seen.status_code, made.status_code) == (401, 401)


@pytest.mark.parametrize("days", [None, 365])
async def test_no_token_ends_after_the_one_that_made_it(api: Api, days: float | None) -> None:
    end = in_hours(24)
    new = await make_token(api, expires_at=end)
    _login, cookie = await log_in(api, new.token)
    body = {"name": "heir", "role": "admin", "expires_in_days": days}

    by_token = await api.client(new.token).post("/api/tokens", json=body)
    by_session = await api.client().post("/api/tokens", json=body, headers=cookie)

    assert [by_token.json()["expires_at"], by_session.json()["expires_at"]] == [end, end]


async def test_whoever_logged_in_by_the_link_makes_tokens_without_an_end(api: Api) -> None:
    server = await api.app.state.holder.get()
    code = await api.app.state.access.create_link(server, Identity("owner", Role.ADMIN))
    login = await api.client().get("/login", params={"code": code})
    cookie = {"Cookie": login.headers["set-cookie"].split(";")[0]}

    made = await api.client().post("/api/tokens", json={"name": "ci", "role": "operator"}, headers=cookie)

    assert (made.status_code, made.json()["expires_at"]) == (201, None)


async def test_a_login_link_works_once_on_whichever_server_it_is_followed(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind one address a browser does not choose the server, and each has a data directory of its own."""
    monkeypatch.setattr(engine, "build_agent", engine.build_agent)  # put back what the servers put in its place
    with fresh_schema(postgres_url) as url:
        async with (
            open_api(tmp_path / "one", FAST, database_url=url) as one,
            open_api(tmp_path / "two", FAST, database_url=url) as two,
        ):
            server = await one.app.state.holder.get()
            code = await one.app.state.access.create_link(server, Identity("owner", Role.ADMIN))
            login = await two.client().get("/login", params={"code": code})
            again = [(await each.client().get("/login", params={"code": code})).status_code for each in (one, two)]
            cookie = {"Cookie": login.headers["set-cookie"].split(";")[0]}
            sessions = [(await each.client().get("/api/session", headers=cookie)).json() for each in (one, two)]
    assert (login.status_code, again) == (303, [401, 401])
    assert [session["role"] for session in sessions] == ["admin", "admin"]


async def test_whoever_revokes_a_token_revokes_what_was_made_with_it_and_their_sessions(database_url: str) -> None:
    db = Database(database_url)
    await db.init_schema()
    try:
        async with open_journal(db.store) as journal:
            chain = [await create_token(journal, name="t0", role=Role.ADMIN)]
            for number in range(1, 4):
                maker = chain[-1].token_id
                chain.append(await create_token(journal, name=f"t{number}", role=Role.ADMIN, by_token_id=maker))
            other = await create_token(journal, name="other", role=Role.ADMIN)
            options: Any = {"name": "page", "role": Role.ADMIN, "expires_at": in_hours(1)}
            sessions = [await open_session(journal, **options, token_id=new.token_id) for new in [*chain, other]]

            first = await revoke_token(db, journal, chain[1].token_id, by="ana", keep_children=True)
            middle = [await find_valid_token(db, new.token) is not None for new in chain]
            whole = await revoke_token(db, journal, chain[0].token_id, by="ana")
            again = await revoke_token(db, journal, chain[0].token_id, by="bob")
        rows = {row.name: row for row in await list_tokens(db)}

        assert [(done.tokens, done.sessions) for done in (first, whole, again)] == [(1, 1), (3, 3), (0, 0)]
        assert middle == [True, False, True, True]
        assert [await find_valid_token(db, new.token) for new in chain] == [None] * 4
        assert [await find_valid_session(db, secret) is None for secret in sessions] == [True] * 4 + [False]
        assert await find_valid_token(db, other.token) is not None
        assert {rows[f"t{number}"].revoked_by for number in range(4)} == {"ana"}
        assert [rows["t1"].made_with, rows["t0"].made_with] == [chain[0].token_id, None]
    finally:
        await db.dispose()


async def test_no_token_made_while_its_maker_is_revoked_outlives_it(database_url: str) -> None:
    """A program that makes tokens with tokens as fast as it can is not faster than the revocation of the first."""
    dbs = [Database(database_url), Database(database_url)]
    await dbs[0].init_schema()
    try:
        async with open_journal(dbs[0].store) as journal, open_journal(dbs[1].store) as elsewhere:
            first = await create_token(journal, name="first", role=Role.ADMIN)
            made: list[NewToken] = [first]
            has_begun = asyncio.Event()

            async def multiply() -> None:
                while True:
                    maker = made[-1].token_id
                    made.append(await create_token(journal, name="heir", role=Role.ADMIN, by_token_id=maker))
                    if len(made) == 5:
                        has_begun.set()
                    await asyncio.sleep(0)  # an append of one run is made inline and would not let the other task in

            async def revoke() -> int:
                await has_begun.wait()
                return (await revoke_token(dbs[1], elsewhere, first.token_id)).tokens

            multiplied, revoked = await asyncio.gather(multiply(), revoke(), return_exceptions=True)

        assert isinstance(multiplied, NotAuthenticated)
        assert revoked == len(made) >= 5
        assert await find_valid_tokens(dbs[0], [new.token for new in made]) == [None] * len(made)
    finally:
        for db in dbs:
            await db.dispose()


async def test_the_answer_says_how_many_tokens_and_sessions_ended(api: Api) -> None:
    new = await make_token(api)
    heir = (await api.client(new.token).post("/api/tokens", json={"name": "heir", "role": "viewer"})).json()
    _login, cookie = await log_in(api, heir["token"])

    listed = {item["id"]: item for item in (await api.admin.get("/api/tokens")).json()["items"]}
    answer = await api.admin.delete(f"/api/tokens/{new.token_id}")

    assert listed[heir["id"]]["made_with"] == new.token_id
    assert answer.json() == {"id": new.token_id, "tokens": 2, "sessions": 1}
    assert (await api.client(heir["token"]).get("/api/session")).status_code == 401
    assert (await api.client().get("/api/session", headers=cookie)).status_code == 401


async def test_tokens_made_with_a_revoked_one_can_be_kept(api: Api) -> None:
    new = await make_token(api)
    heir = (await api.client(new.token).post("/api/tokens", json={"name": "heir", "role": "viewer"})).json()

    answer = await api.admin.delete(f"/api/tokens/{new.token_id}", params={"keep_children": True})

    assert answer.json()["tokens"] == 1
    assert (await api.client(heir["token"]).get("/api/session")).status_code == 200
