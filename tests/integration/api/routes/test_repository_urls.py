"""A run on a repository that is named by a URL, over HTTP: only those that whoever runs the server has listed."""

import shutil
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.api.server_world import Api, NoteAgent, open_api
from tests.support.git_server import PASSWORD, GitServer, serving_git
from tests.support.silent_server import open_silent_server

from holdfast import engine
from holdfast.engine.merge import MergeRequest, merge_run
from holdfast.workspace.transfer import remote_git


def git(repo: Path, *command: str) -> str:
    done = subprocess.run(["git", "-C", str(repo), *command], check=True, capture_output=True, text=True)
    return done.stdout.strip()


class WorkAgent(NoteAgent):
    """Also changes a file of the repository."""

    async def ainvoke(self, state: dict[str, Any], **kw: Any) -> dict[str, Any]:
        (self._root / "work.txt").write_text("done\n")
        return await super().ainvoke(state, **kw)


@pytest.fixture
def bare(furnished: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The repository as a server has it; its definitions are the user's own here."""
    monkeypatch.setenv("HOME", str(furnished))
    monkeypatch.setenv("HOLDFAST_CONFIG", str(furnished / "config" / "config.toml"))
    made = furnished / "served" / "team" / "shop.git"
    git(furnished, "clone", "--quiet", "--bare", str(furnished / "work" / "repo"), str(made))
    git(made, "config", "http.receivepack", "true")
    shutil.copytree(furnished / "work" / "repo" / ".holdfast", furnished / "config")
    (furnished / "config" / "config.toml").write_text("")
    return made


@pytest.fixture
async def served(
    furnished: Path, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Api, GitServer, str]]:
    monkeypatch.setattr(engine, "build_agent", engine.build_agent)
    with serving_git(furnished / "served", furnished) as server:
        server.let_in(furnished)
        async with open_api(furnished, carry_files=True, allowed_repositories=[server.url("team")]) as api:
            engine.build_agent = lambda _persona, _config, *, root_dir, **_kw: WorkAgent(root_dir, api.gates, "a note")
            yield api, server, server.url("team/shop.git")


async def test_a_run_starts_from_a_listed_url_and_is_pushed_from_another_machine(
    served: tuple[Api, GitServer, str], bare: Path, furnished: Path
) -> None:
    api, server, url = served
    preview = (await api.operator.post("/api/runs/preview", json=api.body(repo_path=url))).json()
    assert (preview["problems"], preview["repository"]["branches"]) == ([], ["main"])

    run_id = await api.start(repo_path=url, base_branch=None)
    detail = await api.wait_for(run_id, "completed")
    assert (detail["repo_path"], detail["base_branch"]) == (url, "main")
    diff = await api.viewer.get(f"/api/runs/{run_id}/diff")
    assert diff.status_code == 200, diff.text

    there = replace(api.config, data_dir=furnished / "other")
    holder = await api.app.state.holder.get()
    merged = await merge_run(holder.db, there, run_id, MergeRequest())  # a machine that has never seen the run
    again = await api.operator.post(f"/api/runs/{run_id}/merge")
    assert (merged["branch"], again.json()["action"]) == ("main", "nothing_to_do")
    assert git(bare, "log", "-1", "--format=%H", "main") == merged["commit"]
    assert git(bare, "show", "main:work.txt") == "done"
    used = (await api.operator.get("/api/repositories")).json()["items"]
    assert url in [item["path"] for item in used]
    texts = [detail, diff.text, used, [event.payload for event in await holder.journal.read(run_id)]]
    assert PASSWORD not in repr(texts)

    for path in ("teams/shop.git", "team/../other/shop.git", "team/%2e%2e/other/shop.git"):
        answer = await api.operator.post("/api/runs", json=api.body(repo_path=server.url(path)))
        assert (answer.status_code, answer.json()["code"]) == (403, "repository_not_allowed"), answer.text


URLS = (
    "https://example.org/a.git",
    "https://name:a-secret@example.org/a.git",
    "http://example.org/a.git",
    "git@example.org:a.git",
    "name:a-secret@example.org:a.git",
    "ssh://example.org/a.git",
    "git://example.org/a.git",
    "file:///srv/a.git",
    "ext::sh -c true",
)


async def test_a_server_takes_no_url_unless_one_is_listed(api: Api) -> None:
    for url in URLS:
        for path in ("/api/runs", "/api/conversations"):
            body = {"text": "hello", "simulate": True} if path.endswith("conversations") else api.body()
            answer = await api.operator.post(path, json={**body, "repo_path": url})
            assert (answer.status_code, answer.json()["code"]) == (403, "repository_not_allowed"), answer.text
            assert "a-secret" not in answer.text
        preview = (await api.operator.post("/api/runs/preview", json=api.body(repo_path=url))).json()
        assert "repository_not_allowed" in [problem["code"] for problem in preview["problems"]]


async def test_a_request_with_the_url_of_a_server_that_says_nothing_is_answered(
    furnished: Path, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_git, "SILENT_S", 1.0)
    with open_silent_server() as port:
        url = f"https://127.0.0.1:{port}/shop.git"
        async with open_api(furnished, allowed_repositories=[url]) as api:
            answer = await api.operator.post("/api/runs", json=api.body(repo_path=url))
            preview = (await api.operator.post("/api/runs/preview", json=api.body(repo_path=url))).json()
    assert (answer.status_code, answer.json()["code"]) == (409, "repository_missing"), answer.text
    assert "has said nothing for 1 s" in answer.json()["detail"]
    assert "repository_missing" in [problem["code"] for problem in preview["problems"]]
