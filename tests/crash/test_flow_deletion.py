"""A flow that is deleted is whole or gone, wherever the process that deletes it dies."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.support.crash.dying_command import run_dying
from tests.support.postgres_server import fresh_schema

from holdfast import Context, run_flow
from holdfast.runtime import flow_rows
from holdfast.runtime.stores import open_store

_TX = "holdfast.runtime.checkpoint"
POINTS = {
    "before": ("before holdfast.runtime.journal:Journal.delete", True),
    "within": ("", True),  # all of it is deleted, and nothing committed
    "after": ("after holdfast.runtime.journal:Journal.delete", False),
}
_WITHIN = {
    "sqlite": f"after {_TX}.sqlite.transaction:SQLiteTx.delete_run",
    "postgres": f"after {_TX}.postgres.store:delete_run",
}


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "flows.db")
    else:
        with fresh_schema(request.getfixturevalue("postgres_url")) as url:
            yield url


async def big(ctx: Context) -> int:
    text: str = await ctx.step("big", lambda: "x" * 300_000)  # stored apart, as a big value
    return len(text)


@pytest.mark.parametrize("point", POINTS)
async def test_a_flow_whose_deletion_is_killed_is_whole_or_gone(store_url: str, tmp_path: Path, point: str) -> None:
    place, is_left = POINTS[point]
    kind = "postgres" if store_url.startswith("postgresql") else "sqlite"
    await run_flow(big, run_id="old", store=store_url)
    await run_flow(big, run_id="other", store=store_url)
    log = tmp_path / "log"

    code = run_dying(["runs", "rm", "old", "--yes", "--store", store_url], place or _WITHIN[kind], os.environ, log)

    assert code == -signal.SIGKILL, log.read_text()
    store = open_store(store_url)
    found = [event.kind for event in store.list_events("old")]
    row = flow_rows.read_row(store, "old")
    assert (bool(found), row is not None, "old" in store.list_runs()) == (is_left, is_left, is_left)
    if is_left:
        assert await run_flow(big, run_id="old", store=store_url) == 300_000  # with its big value
    assert await run_flow(big, run_id="other", store=store_url) == 300_000
    store.close()
    if kind == "postgres":
        with psycopg.connect(store_url) as connection:
            counted = connection.execute("SELECT count(DISTINCT run_id) FROM blob_refs").fetchone()
        assert counted == (2 if is_left else 1,)
