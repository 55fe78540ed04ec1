"""What a server lets a repository do: only what its very definitions were agreed to, and only below its root."""

import asyncio
import subprocess
from pathlib import Path

import pytest
from tests.support.api.server_world import Api, make_repository

from holdfast.api.server import engines
from holdfast.api.server.server import Server
from holdfast.engine.run.load import load_run

PERSONA = """
name: zz-own
version: {version}
description: The repository's own.
backend: {backend}
model: simulated
capabilities: [spec_write, code_write]
{more}
"""


def write_persona(repo: Path, *, version: int, more: str = "", backend: str = "simulated") -> None:
    folder = repo / ".holdfast" / "personas"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "own.yaml").write_text(PERSONA.format(version=version, more=more, backend=backend))


HOSTILE = "permissions: {commands: {allow: ['rm *']}}"


async def test_a_run_is_bound_to_what_was_checked_and_not_to_what_was_read_before(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_KEEP_S", 3600.0)
    server: Server = await api.app.state.holder.get()
    write_persona(api.repo, version=1, more=HOSTILE)
    await server.engines.for_repository(api.repo)  # somebody else's run: the files are remembered for some seconds
    write_persona(api.repo, version=1)

    started = await api.operator.post("/api/runs", json=api.body(persona_overrides={"author": "zz-own"}))

    loaded = await load_run(server.db, started.json()["run_id"], ())
    entries = server.engines.catalog(api.repo).list_personas()
    own = next(entry for entry in entries if entry.definition.name == "zz-own").definition
    assert loaded.personas["author"].content_hash == own.content_hash


async def test_a_conversation_is_bound_to_what_was_checked(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_KEEP_S", 3600.0)
    server: Server = await api.app.state.holder.get()
    write_persona(api.repo, version=1, more=HOSTILE)
    await server.engines.for_repository(api.repo)
    write_persona(api.repo, version=1)

    body = {"repo_path": str(api.repo), "text": "Who are you?", "persona": "zz-own", "simulate": True}
    started = await api.operator.post("/api/conversations", json=body)

    assert started.status_code == 202, started.text
    loaded = await load_run(server.db, started.json()["run_id"], ())
    entries = server.engines.catalog(api.repo).list_personas()
    own = next(entry for entry in entries if entry.definition.name == "zz-own").definition
    assert [persona.content_hash for persona in loaded.personas.values()] == [own.content_hash]


@pytest.mark.parametrize("how", ["file", "link", "worktree", "refs"])
async def test_a_git_directory_outside_the_root_is_refused(api: Api, tmp_path: Path, how: str) -> None:
    victim = await asyncio.to_thread(make_repository, tmp_path / "victim")
    place = api.repo.parent / "planted"
    git = ["git", "-C", str(victim)]
    if how == "worktree":
        subprocess.run([*git, "worktree", "add", "-q", str(place), "-b", "side"], check=True, capture_output=True)
    elif how == "refs":
        subprocess.run(["git", "clone", "-q", str(victim), str(place)], check=True, capture_output=True)
        (place / ".git/refs").rename(place / ".git/refs.old")
        (place / ".git/refs").symlink_to(victim / ".git/refs")
    else:
        place.mkdir()
        (place / ".git").write_text(f"gitdir: {victim}/.git\n") if how == "file" else (place / ".git").symlink_to(
            victim / ".git"
        )

    answer = await api.operator.post("/api/runs", json=api.body(repo_path=str(place), workflow="feature-delivery"))

    assert (answer.status_code, answer.json()["code"]) == (403, "repository_not_allowed")
    refs = subprocess.run([*git, "for-each-ref"], check=True, capture_output=True, text=True).stdout
    assert "holdfast" not in refs


@pytest.mark.parametrize("below", [".git", ".git/refs", ".git/hooks"])
async def test_a_path_inside_a_git_directory_makes_no_run(api: Api, below: str) -> None:
    body = api.body(repo_path=str(api.repo / below), workflow="feature-delivery")
    answer = await api.operator.post("/api/runs", json=body)

    assert answer.json()["code"] == "workspace_error"
    assert (await api.viewer.get("/api/runs")).json()["items"] == []


@pytest.mark.parametrize("branch", ["nope", "a..b", "-x", "refs/heads/../x", "x.lock"])
@pytest.mark.parametrize("kind", ["repository", "folder", "empty"])
async def test_a_branch_that_cannot_be_started_from_makes_no_run(api: Api, branch: str, kind: str) -> None:
    place = api.repo if kind == "repository" else api.repo.parent / kind
    if kind != "repository":
        place.mkdir()
        (place / "a.txt").write_text("a\n")
    if kind == "empty":
        subprocess.run(["git", "init", "-q", str(place)], check=True)
    body = api.body(repo_path=str(place), workflow="feature-delivery", base_branch=branch)

    answer = await api.operator.post("/api/runs", json=body)

    if branch == "nope" and kind != "repository":
        assert answer.status_code == 202  # it will be the name of the first branch
        return
    assert answer.status_code in (404, 409, 422), answer.text
    assert (await api.viewer.get("/api/runs")).json()["items"] == []


@pytest.mark.parametrize("field", ["repo_path", "workflow", "base_branch", "persona_overrides"])
async def test_a_name_that_is_too_long_for_a_file_is_refused(api: Api, field: str) -> None:
    long = "x" * 300
    values = {
        "repo_path": str(api.repo / long),
        "workflow": f"{long}.yaml",
        "base_branch": long,
        "persona_overrides": {"author": long},
    }
    answer = await api.operator.post("/api/runs", json=api.body(**{field: values[field]}))

    assert 400 <= answer.status_code < 500, answer.text
    assert answer.json()["code"]
