"""What has had its time is forgotten, and nothing else."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import text
from tests.support.api.server_world import Api

from holdfast.api.server.server import clean
from holdfast.enums import Role
from holdfast.persistence.access import open_session
from holdfast.persistence.statements import to_time_text


async def count(api: Api, table: str) -> Any:
    server = await api.app.state.holder.get()
    async with server.db.session() as session:
        return (await session.execute(text(f"SELECT COUNT(*) FROM {table}"))).scalar()


async def test_a_server_that_starts_forgets_old_sessions_and_keeps_young_ones(api: Api) -> None:
    server = await api.app.state.holder.get()
    login = await api.nobody.post("/api/session", json={"token": api.tokens["viewer"]})
    yesterday = to_time_text(datetime.now(UTC) - timedelta(days=1))
    await open_session(server.journal, name="old", role=Role.VIEWER, expires_at=yesterday)
    assert await count(api, "sessions") == 2

    await api.app.state.holder.close()
    while await count(api, "sessions") == 2:  # the first request opens the server again
        await asyncio.sleep(0.01)

    cookie = {"Cookie": login.headers["set-cookie"].split(";")[0]}
    assert (await api.client().get("/api/session", headers=cookie)).status_code == 200
    assert await count(api, "sessions") == 1


async def test_a_key_is_remembered_for_its_time_and_forgotten_after_it(api: Api) -> None:
    server = await api.app.state.holder.get()
    first = (await api.operator.post("/api/runs", json=api.body(), headers={"Idempotency-Key": "k"})).json()
    days = timedelta(days=server.options.idempotency_days)

    await clean(server.journal, server.options, now=datetime.now(UTC) + days - timedelta(hours=1))
    same = (await api.operator.post("/api/runs", json=api.body(), headers={"Idempotency-Key": "k"})).json()
    await clean(server.journal, server.options, now=datetime.now(UTC) + days + timedelta(hours=1))
    other = (await api.operator.post("/api/runs", json=api.body(), headers={"Idempotency-Key": "k"})).json()

    assert first["run_id"] == same["run_id"] != other["run_id"]
