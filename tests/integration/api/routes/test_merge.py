"""A result is brought to its branch over HTTP as by the command: once, by name, and never under someone's hands."""

import asyncio
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from tests.support.api.server_world import Api, NoteAgent
from tests.support.slow_git import SlowGit

from holdfast import engine
from holdfast.engine.audit import check_database
from holdfast.engine.merge import MergeRequest, merge_run
from holdfast.errors import RunBusy, TargetBranchMissing
from holdfast.persistence.db import Database


class WorkAgent(NoteAgent):
    """Also changes a file of the repository."""

    async def ainvoke(self, state: dict[str, Any], **kw: Any) -> dict[str, Any]:
        (self._root / "work.txt").write_text("done\n")
        return await super().ainvoke(state, **kw)


@pytest.fixture
def working(api: Api, monkeypatch: pytest.MonkeyPatch) -> Api:
    def build_agent(_persona: Any, _config: Any, *, root_dir: Path, **_kw: Any) -> NoteAgent:
        return WorkAgent(Path(root_dir), api.gates, "a note")

    monkeypatch.setattr(engine, "build_agent", build_agent)
    return api


def git(repo: Path, *command: str) -> str:
    done = subprocess.run(["git", "-C", str(repo), *command], check=True, capture_output=True, text=True)
    return done.stdout.strip()


async def kinds_of(api: Api, run_id: str) -> list[tuple[str, Any]]:
    server = await api.app.state.holder.get()
    events = await server.journal.read(run_id)
    return [(event.kind, event.payload.get("by")) for event in events if event.kind.startswith("run.merge")]


async def test_a_result_is_merged_once_and_the_journal_has_who_did_it(working: Api) -> None:
    run_id = await working.start()
    await working.wait_for(run_id, "completed")

    first = await working.operator.post(f"/api/runs/{run_id}/merge")
    again = await working.operator.post(f"/api/runs/{run_id}/merge", json={"into": "main"})

    assert first.status_code == 200, first.text
    assert (first.json()["action"], first.json()["branch"]) == ("fast_forwarded", "main")
    assert again.json()["action"] == "nothing_to_do"
    assert (working.repo / "work.txt").read_text() == "done\n"
    assert git(working.repo, "rev-parse", "main") == first.json()["commit"]
    assert not (working.repo / "first.json").exists()
    assert await kinds_of(working, run_id) == 2 * [("run.merge.requested", "operator"), ("run.merged", "operator")]
    detail = (await working.viewer.get(f"/api/runs/{run_id}")).json()
    assert detail["state"] == "completed"
    assert await check_database((await working.app.state.holder.get()).db) == []


async def test_a_merge_into_another_branch_makes_it(working: Api) -> None:
    run_id = await working.start()
    await working.wait_for(run_id, "completed")

    url, into = f"/api/runs/{run_id}/merge", {"into": "result/one"}
    refused = await working.operator.post(url, json=into)
    tried = await working.operator.post(url, json={**into, "create": True, "dry_run": True})
    answer = await working.operator.post(url, json={**into, "create": True, "squash": True, "message": "Note it"})

    assert (refused.status_code, refused.json()["code"]) == (409, "target_branch_missing")
    assert (tried.json()["dry_run"], [file["path"] for file in tried.json()["files"]]) == (True, ["work.txt"])
    assert answer.json()["commits"] == ["Note it"]
    assert answer.json()["action"] == "created"
    assert git(working.repo, "show", "result/one:work.txt") == "done"
    assert not (working.repo / "work.txt").exists()


async def test_a_diff_shows_what_a_merge_would_bring_and_holdfasts_own_files_if_asked(working: Api) -> None:
    run_id = await working.start()
    await working.wait_for(run_id, "completed")
    url = f"/api/runs/{run_id}/diff"

    plain = (await working.viewer.get(url)).text
    whole = (await working.viewer.get(url, params={"artifacts": True})).text
    of_phase = (await working.viewer.get(url, params={"phase": "second"})).text

    assert re.findall(r"^diff --git a/(\S+)", plain, re.MULTILINE) == ["work.txt"]
    assert re.findall(r"^diff --git a/(\S+)", whole, re.MULTILINE) == ["first.json", "second.json", "work.txt"]
    assert of_phase == ""
    await working.operator.post(f"/api/runs/{run_id}/merge")
    assert git(working.repo, "diff", "--stat", "HEAD~1").startswith("work.txt | 1 +")


async def test_a_conflict_names_the_files_and_changes_nothing(working: Api) -> None:
    run_id = await working.start()
    await working.wait_for(run_id, "completed")
    (working.repo / "work.txt").write_text("mine\n")

    answer = await working.operator.post(f"/api/runs/{run_id}/merge")

    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["paths"]) == (409, "workspace_conflict", ["work.txt"])
    assert (working.repo / "work.txt").read_text() == "mine\n"
    assert await kinds_of(working, run_id) == [("run.merge.requested", "operator")]


async def test_a_folder_without_git_gets_its_files(working: Api) -> None:
    folder = working.config.workspace_root / "plain"
    folder.mkdir()
    (folder / "readme.txt").write_text("plain\n")
    shutil.copytree(working.repo / ".holdfast", folder / ".holdfast")
    run_id = await working.start(repo_path=str(folder))
    await working.wait_for(run_id, "completed")

    answer = await working.operator.post(f"/api/runs/{run_id}/merge")

    assert answer.status_code == 200, answer.text
    assert (answer.json()["folder"], answer.json()["paths"]) == (str(folder), ["work.txt"])
    assert (folder / "work.txt").read_text() == "done\n"


async def test_a_run_that_is_driven_or_has_made_nothing_is_not_merged(working: Api) -> None:
    (working.gates / "second.closed").touch()
    driven = await working.start()
    await working.wait_until_reached(driven, "second")
    waiting = await working.start(workflow="asking-notes")
    await working.wait_for(waiting, "paused")

    busy = await working.operator.post(f"/api/runs/{driven}/merge")
    empty = await working.operator.post(f"/api/runs/{waiting}/merge")
    unknown = await working.operator.post("/api/runs/none/merge")
    (working.gates / "second.closed").unlink()
    ended = await working.wait_for(driven)

    assert (busy.status_code, busy.json()["code"]) == (409, "run_busy")
    assert (empty.status_code, empty.json()["code"]) == (409, "run_not_in_state")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "run_not_found")
    assert ended["state"] == "completed"
    assert await kinds_of(working, driven) == await kinds_of(working, waiting) == []


async def test_nothing_is_written_outside_of_the_workspace_root(working: Api, tmp_path: Path) -> None:
    run_id = await working.start()
    await working.wait_for(run_id, "completed")
    server = await working.app.state.holder.get()
    async with server.db.session() as session:
        await session.execute(text("UPDATE runs SET repo_path = :path"), {"path": str(tmp_path / "elsewhere")})
        await session.commit()

    answer = await working.operator.post(f"/api/runs/{run_id}/merge")

    assert (answer.status_code, answer.json()["code"]) == (403, "repository_not_allowed")
    assert not (working.repo / "work.txt").exists()


async def test_a_client_that_leaves_does_not_stop_a_merge_or_free_its_run(
    working: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await working.start()
    await working.wait_for(run_id, "completed")
    server = await working.app.state.holder.get()
    with SlowGit(tmp_path / "slow", "commit-tree", monkeypatch) as git:
        asking = asyncio.create_task(working.operator.post(f"/api/runs/{run_id}/merge"))
        await git.wait_until_reached()
        asking.cancel()
        await asyncio.wait((asking,), timeout=5)
        with pytest.raises(RunBusy):
            await server.journal.claim(run_id)
        assert await kinds_of(working, run_id) == [("run.merge.requested", "operator")]
    await server.tasks.drain()

    assert await kinds_of(working, run_id) == [("run.merge.requested", "operator"), ("run.merged", "operator")]
    assert (working.repo / "work.txt").read_text() == "done\n"
    again = await working.operator.post(f"/api/runs/{run_id}/merge")
    assert again.json()["action"] == "nothing_to_do"


async def test_a_server_that_stops_waits_for_a_merge_and_its_record(
    working: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await working.start()
    await working.wait_for(run_id, "completed")
    with SlowGit(tmp_path / "slow", "commit-tree", monkeypatch) as git:
        asking = asyncio.create_task(working.operator.post(f"/api/runs/{run_id}/merge"))
        await git.wait_until_reached()
        asking.cancel()  # as the server does with requests that take too long for its end
        stopping = asyncio.create_task(working.app.state.holder.close())
        await asyncio.wait((stopping,), timeout=0.5)
        assert not stopping.done()
    await stopping

    db = Database(working.config.database_url)
    assert [event.kind for event in db.store.list_events(run_id)][-2:] == ["run.merge.requested", "run.merged"]
    await db.dispose()


@pytest.mark.parametrize("into", ["-f", "a..b", "a b", "x~1", "", "refs/heads/\n", "@{-1}"])
async def test_a_name_that_is_no_branch_is_refused(working: Api, into: str) -> None:
    run_id = await working.start()
    await working.wait_for(run_id, "completed")
    before = git(working.repo, "for-each-ref", "refs/heads")

    answer = await working.operator.post(f"/api/runs/{run_id}/merge", json={"into": into})

    assert answer.status_code in (409, 422), answer.text
    assert git(working.repo, "for-each-ref", "refs/heads") == before


async def test_what_waits_is_in_the_diff_and_the_changes_but_in_no_merge(working: Api) -> None:
    run_id = await working.start(workflow="asking-notes")
    detail = await working.wait_for(run_id, "paused")
    (approval,) = detail["approvals"]
    key = approval["phase_key"]

    diff = await working.viewer.get(f"/api/runs/{run_id}/diff")
    of_phase = await working.viewer.get(f"/api/runs/{run_id}/diff", params={"phase": key})
    changes = (await working.viewer.get(f"/api/runs/{run_id}/changes")).json()
    merge = await working.operator.post(f"/api/runs/{run_id}/merge")

    assert "+done" in diff.text
    assert of_phase.text == diff.text
    assert "work.txt" in [file["path"] for file in changes["files"]]
    assert merge.status_code == 409
    assert not (working.repo / "work.txt").exists()


@pytest.mark.parametrize("into", ["HEAD", "@", "refs/heads/main", "main\u2028", "a..b", "a.lock", "a/", "\u00fc" * 150])
async def test_what_is_no_branch_of_the_users_is_not_merged_into(working: Api, into: str) -> None:
    run_id = await working.start()
    await working.wait_for(run_id, "completed")
    refs = git(working.repo, "for-each-ref")

    answer = await working.operator.post(f"/api/runs/{run_id}/merge", json={"into": into, "create": True})

    assert (answer.status_code, answer.json()["code"]) == (422, "request_invalid")
    assert git(working.repo, "for-each-ref") == refs


async def test_a_branch_that_another_run_works_on_is_not_merged_into(working: Api) -> None:
    done = await working.start()
    await working.wait_for(done, "completed")
    other = await working.start(workflow="asking-notes")
    await working.wait_for(other, "paused")
    names = git(working.repo, "for-each-ref", "--format=%(refname:short)", "refs/heads/holdfast").split()
    (branch,) = [name for name in names if other in name]
    tip = git(working.repo, "rev-parse", branch)

    by_http = await working.operator.post(f"/api/runs/{done}/merge", json={"into": branch})
    server = await working.app.state.holder.get()
    with pytest.raises(TargetBranchMissing, match="works on"):
        await merge_run(server.db, working.config, done, MergeRequest(into=branch))

    assert (by_http.status_code, by_http.json()["code"]) == (422, "request_invalid")
    assert git(working.repo, "rev-parse", branch) == tip
