"""SIGTERM to a server in the middle of everything that runs can be in: it ends, and the next one goes on.

What is interrupted would go on for ever, so a test that ends has interrupted it.
"""

import contextlib
import json
import os
import shutil
import signal
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

from tests.integration.api.server.test_restarts import admin_token, client_of
from tests.support.api.server_process import ServerProcess, serving
from tests.support.model_server import Drips, Hangs, ModelServer, Says, asks, own_persona
from tests.support.postgres_server import fresh_schema
from tests.support.progress_limit import until

from holdfast.runtime.events import Event
from holdfast.runtime.stores import open_store

WORKFLOW = """
name: {name}
version: 1
roles: [{{id: author, required_capabilities: [spec_write], preferred_backends: [openai_compatible]}}]
phases:
  - {{key: first, title: First, risk: {risk}, role: author, instructions: Write a note., timeout_seconds: 3600,
     expected_artifact: {{path: first.json, schema: t/note@1}}}}
"""
WRITES = asks(("write_file", {"file_path": "/first.json", "content": json.dumps({"note": "done"})}))
ENDS: list[Any] = [WRITES, Says("Done.")]
# It goes on once a file says so, and leaves a trace each time it is run.
WAITS = "echo once >> ran; while [ ! -e go ]; do sleep 0.05; done"
SUB_WORK = {"description": "Sub work", "subagent_type": "general-purpose"}
SCRIPT = {
    "Streams": [[Drips(pause_s=0.01), WRITES], Says("Done.")],
    "Silent": [[Hangs(has_head=True), WRITES], Says("Done.")],
    "Lists": [asks(("ls", {"path": "/"})), *ENDS],
    "Runs": [asks(("execute", {"command": WAITS, "timeout": 3000})), *ENDS],
    "Delegates": [asks(("task", SUB_WORK)), *ENDS],
    "Sub work": [[Drips(pause_s=0.01), Says("The part is done.")]],
    "Asks": ENDS,
    "Saves": ENDS,
}


def furnish(folder: Path, server: ModelServer) -> None:
    for kind in ("workflows", "personas"):
        (folder / kind).mkdir()
    for name, risk in (("one", "low"), ("asking", "high")):
        (folder / "workflows" / f"{name}.yaml").write_text(WORKFLOW.format(name=name, risk=risk))
    (folder / "personas" / "mine.yaml").write_text(own_persona(server.address, "spec_write, shell"))


async def start(client: Any, folder: Path, word: str) -> str:
    workflow = "asking" if word == "Asks" else "one"
    repo = str(folder / "work" / "repo")
    body = {
        "workflow": workflow,
        "repo_path": repo,
        "requirements_md": f"{word}.",
        "persona_overrides": {"author": "mine"},
    }
    answer = await client.post("/api/runs", json=body)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["run_id"])


def read_states(folder: Path) -> dict[str, str]:
    with sqlite3.connect(folder / "data/holdfast.db") as database:
        return dict(database.execute("select id, state from runs").fetchall())


def read_journal(folder: Path, run_id: str) -> list[Event]:
    store = open_store(str(folder / "data" / "holdfast.db"))
    try:
        return store.list_events(run_id)
    finally:
        store.close()


def find_doubled(events: list[Event]) -> list[Any]:
    """Find the steps that have two answers."""
    answers = Counter(event.payload["key"] for event in events if event.kind in ("model.response", "tool.result"))
    return [key for key, times in answers.items() if times > 1]


def end_politely(server: ServerProcess) -> None:
    assert server.end(signal.SIGTERM) in (0, -signal.SIGTERM)


async def test_the_next_server_goes_on_with_all_of_it(folder: Path) -> None:
    token = await admin_token(folder)
    slow = folder / "listing"
    settings = {"HOLDFAST_TEST_AGENTS": "simulated", "HOLDFAST_MAX_PARALLEL_RUNS": "10"}
    words = ("Streams", "Silent", "Lists", "Runs", "Delegates", "Asks")
    with ModelServer(SCRIPT) as models:
        furnish(folder, models)
        with serving(folder, HOLDFAST_TEST_SLOW_LS=str(slow), **settings) as first:
            async with client_of(first, token) as client:
                runs = {word: await start(client, folder, word) for word in words}
                worktree = folder / "data/worktrees" / runs["Runs"]
                expected = {("Streams", 0), ("Silent", 0), ("Sub work", 0)}
                await until(lambda: expected <= set(models.places), "the models are asked")
                await until(lambda: slow.exists() and (worktree / "ran").exists(), "the tool and the command run")
                await until(lambda: read_states(folder)[runs["Asks"]] == "paused", "a person is asked")
            end_politely(first)
        states = read_states(folder)

        with serving(folder, **settings) as second:
            async with client_of(second, token) as client:
                (worktree / "go").touch()
                [approval] = (await client.get("/api/approvals")).json()["items"]
                answer = {"action": "approve", "digest": approval["digest"]}
                assert (await client.post(f"/api/approvals/{approval['approval_id']}", json=answer)).is_success
                await until(lambda: set(read_states(folder).values()) == {"completed"}, "all runs are over")

    assert {word: states[run_id] for word, run_id in runs.items()} == {
        **dict.fromkeys(words, "running"),
        "Asks": "paused",
    }
    journals = {word: read_journal(folder, run_id) for word, run_id in runs.items()}
    assert {word: find_doubled(events) for word, events in journals.items()} == {word: [] for word in words}
    assert (worktree / "ran").read_text() == "once\n"


async def test_git_that_stands_still_does_not_keep_a_server(folder: Path) -> None:
    token = await admin_token(folder)
    slow = folder / "slow"
    slow.mkdir()
    git = shutil.which("git")
    (slow / "git").write_text(
        f'#!/bin/sh\ncase "$*" in *write-tree*) : > {slow}/reached; exec sleep 1000;; esac\nexec {git} "$@"\n'
    )
    (slow / "git").chmod(0o755)
    with ModelServer(SCRIPT) as models:
        furnish(folder, models)
        with serving(folder, HOLDFAST_TEST_AGENTS="simulated", PATH=f"{slow}:{os.environ['PATH']}") as first:
            async with client_of(first, token) as client:
                run_id = await start(client, folder, "Saves")
            await until((slow / "reached").exists, "git is called")
            end_politely(first)
        state = read_states(folder)[run_id]

        with serving(folder, HOLDFAST_TEST_AGENTS="simulated"):
            await until(lambda: read_states(folder)[run_id] == "completed", "the run is over")

    assert state == "running"
    assert find_doubled(read_journal(folder, run_id)) == []


async def test_on_postgres_too(folder: Path, postgres_url: str) -> None:
    words = ("Streams", "Silent", "Delegates")
    with fresh_schema(postgres_url) as url, ModelServer(SCRIPT) as models, contextlib.closing(open_store(url)) as store:
        token = await admin_token(folder, database_url=url)
        settings = {"HOLDFAST_TEST_AGENTS": "simulated", "HOLDFAST_DATABASE_URL": url}
        furnish(folder, models)
        with serving(folder, **settings) as first:
            async with client_of(first, token) as client:
                runs = [await start(client, folder, word) for word in words]
                expected = {("Streams", 0), ("Silent", 0), ("Sub work", 0)}
                await until(lambda: expected <= set(models.places), "the models are asked")
            end_politely(first)
        after = [store.list_events(run_id)[-1].is_terminal for run_id in runs]

        def are_completed() -> bool:
            return all(store.list_events(run_id)[-1].kind == "run.completed" for run_id in runs)

        with serving(folder, **settings):
            await until(are_completed, "all runs are over")
        journals = [store.list_events(run_id) for run_id in runs]

    assert after == [False] * len(words)
    assert [find_doubled(events) for events in journals] == [[]] * len(words)
    assert not any(event.kind == "run.paused" for events in journals for event in events)
