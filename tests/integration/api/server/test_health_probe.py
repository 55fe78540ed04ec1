"""Whether the server says that it can work exactly when it can."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.api.server_world import Api

from holdfast.api.server import health_probe
from holdfast.api.server.health_probe import HealthProbe
from holdfast.errors import StoreFull
from holdfast.fleet import run_drive
from holdfast.persistence import access
from holdfast.persistence.db import Database
from holdfast.runtime.stores import open_journal


async def test_a_server_that_cannot_write_says_so(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await api.app.state.holder.get()
    before = await api.nobody.get("/api/health")
    monkeypatch.setattr(health_probe, "_KEEP_S", 0.0)

    def refuse(*_batch: Any, **_options: Any) -> Any:
        raise StoreFull("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(server.journal.store, "append", refuse)
        broken = await api.nobody.get("/api/health")
    after = await api.nobody.get("/api/health")

    assert (before.status_code, before.json()["status"]) == (200, "ok")
    assert (broken.status_code, broken.json()["status"], broken.json()["code"]) == (503, "unavailable", "store_full")
    assert after.status_code == 200


async def test_a_full_disk_is_noticed_although_the_database_is_elsewhere(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_probe, "shutil", SimpleNamespace(disk_usage=lambda _path: SimpleNamespace(free=1000)))

    answer = await api.nobody.get("/api/health")

    assert (answer.status_code, answer.json()["code"]) == (503, "store_full")


async def test_everybody_who_asks_shares_one_look(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    real = access.prove_writable

    async def count(journal: Any) -> None:
        nonlocal looks
        looks += 1
        await real(journal)

    monkeypatch.setattr(health_probe, "prove_writable", count)
    monkeypatch.setattr(health_probe, "_KEEP_S", 60.0)
    answers = await asyncio.gather(*(api.nobody.get("/api/health") for _ in range(20)))

    assert {answer.status_code for answer in answers} == {200}
    assert looks == 1


async def test_what_is_written_to_try_it_lets_nobody_in_and_is_one_row(database_url: str, tmp_path: Any) -> None:
    from sqlalchemy import text

    db = Database(database_url)
    await db.init_schema()
    try:
        async with open_journal(db.store) as journal:
            for _ in range(3):
                assert await HealthProbe(db, journal, tmp_path).find_problem() is None
        async with db.session() as session:
            rows = list(await session.execute(text("SELECT id FROM sessions")))
        assert [tuple(row) for row in rows] == [("probe",)]
        assert await access.find_valid_session(db, "probe") is None
    finally:
        await db.dispose()


async def test_an_import_of_the_agent_layer_that_failed_is_tried_again(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0
    real = run_drive.importlib.import_module

    def fail_once(name: str) -> Any:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ImportError("a file was being replaced")
        return real(name)

    monkeypatch.setattr(run_drive, "importlib", SimpleNamespace(import_module=fail_once))
    run_id = await api.start()

    assert (await api.wait_for(run_id))["state"] == "completed"
    assert tries >= 2
