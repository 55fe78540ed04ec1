"""Deleting runs over HTTP, and what a server cleans up at night."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.support.api.server_world import Api

from holdfast.api.server.nightly_cleanup import clean_tonight, next_time
from holdfast.config import load_config


async def test_an_admin_deletes_a_run_that_is_over_and_a_second_time_it_is_not_there(api: Api) -> None:
    run_id = await api.start()
    await api.wait_for(run_id, "completed")
    admin = api.clients["admin"]

    deleted = await admin.delete(f"/api/runs/{run_id}")

    assert deleted.status_code == 200, deleted.text
    assert deleted.json()["run_id"] == run_id
    assert deleted.json()["size_bytes"] > 0
    for path in ("", "/events", "/diff", "/report", "/timeline", "/cost"):
        assert (await admin.get(f"/api/runs/{run_id}{path}")).status_code == 404
    assert (await admin.delete(f"/api/runs/{run_id}")).status_code == 404
    assert (await admin.get("/api/runs")).json()["items"] == []
    following = await api.start()
    await api.wait_for(following, "completed")


async def test_a_run_that_waits_or_whose_fork_stays_is_not_deleted(api: Api) -> None:
    admin = api.clients["admin"]
    run_id = await api.start()
    await api.wait_for(run_id, "completed")
    forked = (await admin.post(f"/api/runs/{run_id}/fork", json={"phase_key": "first"})).json()["run_id"]
    await api.wait_for(forked, "completed")

    needed = await admin.delete(f"/api/runs/{run_id}")

    assert (needed.status_code, needed.json()["code"]) == (409, "run_not_in_state")
    assert "forked" in needed.json()["detail"]
    assert (await admin.delete("/api/runs/none")).status_code == 404
    assert (await admin.delete(f"/api/runs/{forked}")).status_code == 200
    assert (await admin.delete(f"/api/runs/{run_id}")).status_code == 200


async def test_at_night_files_go_and_whole_runs_only_if_that_is_set(api: Api) -> None:
    server = await api.app.state.holder.get()
    run_id = await api.start()
    await api.wait_for(run_id, "completed")
    worktree = server.config.data_dir / "worktrees" / run_id
    options = {"data_dir": server.config.data_dir, "database_url": server.config.database_url}
    later = datetime.now(UTC) + timedelta(days=2)

    await clean_tonight(server.db, load_config(**options, gc_older_than="3d"), now=later)
    assert worktree.is_dir()
    await clean_tonight(server.db, load_config(**options, gc_older_than="1d"), now=later)
    assert not worktree.exists()
    assert (await api.clients["viewer"].get(f"/api/runs/{run_id}/diff")).status_code == 200
    done = await clean_tonight(server.db, load_config(**options, gc_runs_older_than="1d", gc_max_size="1"), now=later)

    assert [each.deleted_runs for each in done] == [[], [run_id], []]
    assert (await api.clients["viewer"].get(f"/api/runs/{run_id}")).status_code == 404


@pytest.mark.parametrize(
    ("now", "due"),
    [
        ("2026-01-31T03:29:59", "2026-01-31T03:30:00"),
        ("2026-01-31T03:30:00", "2026-02-01T03:30:00"),
        ("2026-12-31T23:59:59", "2027-01-01T03:30:00"),
    ],
)
def test_the_next_time_of_day_is_always_ahead(now: str, due: str) -> None:
    assert next_time("03:30", datetime.fromisoformat(now)) == datetime.fromisoformat(due)
