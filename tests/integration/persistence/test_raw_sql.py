"""The readers without an ORM, on every database; whether a run is driven is known to others without disturbing it."""

from pathlib import Path

import psycopg
import pytest

from holdfast.config import Config
from holdfast.errors import RunNotFound, StoreUnavailable
from holdfast.persistence.db import Database
from holdfast.persistence.models import LedgerRow, RunRow, WorkflowTemplateRow
from holdfast.persistence.raw_sql import (
    RunQuery,
    find_driven,
    find_ids,
    get_run,
    list_unanswered,
    read_open_runs,
    read_payloads,
    read_run_costs,
    read_runs,
    sum_costs,
    sum_day,
    sum_estimated,
    sum_unanswered,
)
from holdfast.runtime.events import EventKind
from holdfast.runtime.stores import open_store


async def test_a_run_is_driven_from_its_claim_to_its_release(database_url: str, tmp_path: Path) -> None:
    db = Database(database_url)
    await db.init_schema()
    await db.dispose()
    config = Config(database_url=database_url, data_dir=tmp_path, workspace_root=tmp_path, config_dir=tmp_path)
    store = open_store(database_url)
    try:
        before = find_driven(["one", "two"], config=config)
        claim = store.claim("one")
        during = find_driven(["one", "two"], config=config)
        store.release(claim)
        after = find_driven(["one", "two"], config=config)
    finally:
        store.close()

    assert (before, during, after) == (set(), {"one"}, set())


def test_a_server_that_does_not_answer_is_waited_for_as_long_as_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def connect(conninfo: str, **_options: object) -> None:
        tried.append(conninfo)
        raise psycopg.OperationalError("connection timeout expired")

    monkeypatch.setattr(psycopg, "connect", connect)
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", "postgresql+psycopg://me:secret@db.example.org/runs")
    with pytest.raises(StoreUnavailable, match=r"postgresql://me@db\.example\.org/runs cannot be reached"):
        find_ids("runs", "ab")

    assert "connect_timeout=5" in tried[0]


async def test_the_readers_find_runs_by_text_beginning_and_cost(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", database_url)
    monkeypatch.setenv("HOLDFAST_DATA_DIR", str(tmp_path))
    now = "2026-01-01T00:00:00Z"
    db = Database(database_url)
    await db.init_schema()
    async with db.session() as session, session.begin():
        session.add(WorkflowTemplateRow(id="t", name="w", version=1, hash="h", definition="{}", created_at=now))
        await session.flush()
        for run_id, state in (("ab_1", "paused"), ("abx2", "completed")):
            session.add(
                RunRow(
                    id=run_id,
                    template_id="t",
                    template_hash="h",
                    state=state,
                    workflow="w",
                    repo_path="/src/till",
                    base_branch="main",
                    created_at=now,
                    updated_at=now,
                )
            )
        await session.flush()
        for number, amount in enumerate((3, 4)):
            session.add(
                LedgerRow(
                    id=str(number),
                    run_id="ab_1",
                    phase_key="plan",
                    attempt=1,
                    state="settled",
                    amount_micros=amount,
                    day=now[:10],
                    created_at=now,
                )
            )
        for number, (day, created_at) in enumerate((("2026-01-02", now), ("2026-01-03", "2026-01-01T00:00:01Z"))):
            session.add(
                LedgerRow(
                    id=f"open{number}",
                    run_id="abx2",
                    phase_key="plan",
                    step_key="plan/1/turn1/m0",
                    amount_micros=10 * (number + 1),
                    day=day,
                    created_at=created_at,
                )
            )
    await db.dispose()

    store = open_store(database_url)
    try:
        claim = store.claim("abx2")  # somebody drives it: the second try is under way, and the first is over
        driven = (sum_unanswered(["ab_1", "abx2"]), [row["id"] for row in list_unanswered("abx2", limit=5)])
        store.release(claim)
    finally:
        store.close()
    assert driven == ({"abx2": 10}, ["open0"])
    assert (sum_unanswered(), sum_unanswered([]), sum_unanswered(day="2026-01-03")) == ({"abx2": 30}, {}, {"abx2": 20})
    assert [row["id"] for row in list_unanswered("abx2", limit=5)] == ["open1", "open0"]
    assert [int(row["held_micros"]) for row in read_run_costs(limit=5) if row["run_id"] == "abx2"] == [30]
    assert [row["perhaps_paid_usd"] for row in read_runs(RunQuery(), limit=5)] == [0.00003, 0]
    assert (sum_estimated("abx2"), read_payloads("abx2", EventKind.RUN_CREATED)) == (0, [])
    assert find_ids("runs", "ab_") == ["ab_1"]  # the underscore is no wildcard
    assert [row["run_id"] for row in read_runs(RunQuery(repository="/src"), limit=5)] == ["abx2", "ab_1"]
    assert read_runs(RunQuery(repository="/sr"), limit=5) == []
    assert [row["id"] for row in read_open_runs(workflow="w")] == ["ab_1"]
    assert [(row["calls"], int(row["total"])) for row in sum_costs("ab_1", "state")] == [(2, 7)]
    assert sum_day(now[:10]) == (7, 0)
    with pytest.raises(RunNotFound):
        get_run("ab_")
