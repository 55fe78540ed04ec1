"""Sessions and tokens end with the token they came from, whatever happens at the same time."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from tests.support.api.server_world import Api

from holdfast.api.http.auth import Identity
from holdfast.enums import Role
from holdfast.errors import NotAuthenticated
from holdfast.persistence.access import (
    ACCESS_JOURNAL,
    NewToken,
    create_token,
    find_valid_session,
    find_valid_token,
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
        login, _revoked = await asyncio.gather(log_in(api, new.token), revoke_token(server.journal, new.token_id))
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
            await revoke_token(journal, maker.token_id)

            with pytest.raises(NotAuthenticated):
                await open_session(journal, **options, token_id=maker.token_id)
            with pytest.raises(NotAuthenticated):
                await create_token(journal, **options, by_token_id=maker.token_id)
            kinds = [str(event.kind) for event in await journal.read(ACCESS_JOURNAL)]
        assert was_valid
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
    code = api.app.state.access.links.create(Identity("owner", Role.ADMIN))
    login = await api.client().get("/login", params={"code": code})
    cookie = {"Cookie": login.headers["set-cookie"].split(";")[0]}

    made = await api.client().post("/api/tokens", json={"name": "ci", "role": "operator"}, headers=cookie)

    assert (made.status_code, made.json()["expires_at"]) == (201, None)
