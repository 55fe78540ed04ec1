"""A server's world for tests: a repository with small workflows of its own, and an agent that only writes its file.

The agent waits where it is told to: a phase whose gate is closed goes on when the file is there.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from tests.support.engine_world import Turn
from tests.support.progress_limit import until, waiting_until

from holdfast import engine
from holdfast.api.app import create_app
from holdfast.api.options import ServerOptions
from holdfast.config import Config, load_config
from holdfast.enums import Role
from holdfast.persistence.access import create_token
from holdfast.persistence.db import Database
from holdfast.runtime.stores import open_journal

ROLES = [role.value for role in Role]
FAST = ServerOptions(poll_s=0.1, heartbeat_s=0.2, grace_s=5.0, recheck_s=0.2)
TERMINAL = ("completed", "failed", "cancelled")

WORKFLOW = """
name: {name}
version: 1
description: Two notes.
roles:
  - id: author
    required_capabilities: [spec_write]
    preferred_backends: [simulated]
phases:
  - key: first
    title: First note
    risk: {risk}
    role: author
    timeout_seconds: 60
    instructions: Write a note.
    expected_artifact: {{path: first.json, schema: t/note@1}}
  - key: second
    title: Second note
    risk: low
    role: author
    timeout_seconds: 60
    instructions: Write another note.
    expected_artifact: {{path: second.json, schema: t/note@1}}
"""
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["note"],
    "properties": {"note": {"type": "string"}},
    "additionalProperties": False,
}


class NoteAgent:
    """Writes its note once its gate is open, and fails, or kills who drives it, while a file says so.

    Before the note it makes a big file with a tool, if a file tells how many bytes it is to have.
    """

    def __init__(self, root: Path, gates: Path, note: str, middleware: Sequence[Any] = ()) -> None:
        self._root = root
        self._gates = gates
        self._note = note
        self._middleware = list(middleware)

    async def ainvoke(self, state: dict[str, Any], **_kw: Any) -> dict[str, Any]:
        content = state["messages"][0]["content"]
        text = content if isinstance(content, str) else content[0]["text"]  # images come behind it
        found = re.search(r"You do phase `(\w+)` of run `([^`]+)`", text)
        assert found is not None
        phase, run_id = found.groups()
        (self._gates / f"{run_id}.{phase}.reached").touch()
        while (self._gates / f"{phase}.closed").exists():
            await asyncio.sleep(0.01)
        if (self._gates / f"{run_id}.kills").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        if (self._gates / f"{phase}.fails").exists():
            raise RuntimeError("the agent was told to fail")
        if (size := self._gates / f"{phase}.big").exists():
            turn = Turn(phase, run_id, self._root, self._middleware, [], None, "")
            await turn.use_tool("write_file", lambda: self._write_big(phase, int(size.read_text())))
        (self._root / f"{phase}.json").write_text(json.dumps({"note": self._note}))
        return {"messages": []}

    def _write_big(self, phase: str, size: int) -> str:
        with (self._gates / f"{phase}.made").open("a") as made:
            made.write("made\n")
        (self._root / "big.bin").write_bytes(os.urandom(size))
        return "written"


def use_note_agents(gates: Path, note: str = "a note") -> None:
    """Put the fake where the engine looks for agents, in this process."""

    def build_agent(_persona: Any, _config: Any, *, root_dir: Path, middleware: list[Any], **_kw: Any) -> NoteAgent:
        return NoteAgent(Path(root_dir), gates, note, middleware)

    engine.build_agent = build_agent


def make_repository(path: Path) -> Path:
    own = path / ".holdfast"
    (own / "workflows").mkdir(parents=True)
    (own / "artifacts" / "t").mkdir(parents=True)
    for name, risk in (("notes", "low"), ("asking-notes", "high"), ("critical-notes", "critical")):
        (own / "workflows" / f"{name}.yaml").write_text(WORKFLOW.format(name=name, risk=risk))
    (own / "artifacts" / "t" / "note@1.json").write_text(json.dumps(SCHEMA))
    git = ["git", "-C", str(path), "-c", "user.name=Test", "-c", "user.email=test@example.org"]
    for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "begin"]):
        subprocess.run([*git, *command], check=True, capture_output=True)
    return path


@dataclass(frozen=True)
class Api:
    """A running app and a client for each role, straight through ASGI."""

    app: FastAPI
    config: Config
    clients: dict[str, httpx.AsyncClient]
    tokens: dict[str, str]
    repo: Path
    gates: Path

    def __getattr__(self, name: str) -> httpx.AsyncClient:
        return self.clients[name]

    def body(self, **changes: Any) -> dict[str, Any]:
        return {"workflow": "notes", "repo_path": str(self.repo), "simulate": True, **changes}

    async def start(self, **changes: Any) -> str:
        answer = await self.operator.post("/api/runs", json=self.body(**changes))
        assert answer.status_code == 202, answer.text
        return str(answer.json()["run_id"])

    async def wait_for(self, run_id: str, *states: str) -> dict[str, Any]:
        """The run's details once it is in one of the states; woken by its events."""
        with waiting_until(f"run {run_id} is {states or TERMINAL}"):
            while True:
                detail: dict[str, Any] = (await self.viewer.get(f"/api/runs/{run_id}")).json()
                if detail["state"] in (states or TERMINAL):
                    return detail
                await self.wait_for_event(run_id, after=detail["seq"])

    async def wait_for_event(self, run_id: str, *, after: int) -> None:
        server = await self.app.state.holder.get()
        async for _event in server.journal.follow(run_id, after):
            return

    async def wait_until_reached(self, run_id: str, phase: str) -> None:
        await until((self.gates / f"{run_id}.{phase}.reached").exists, f"run {run_id} has reached {phase}")

    def client(self, token: str | None = None, **headers: str) -> httpx.AsyncClient:
        fields = {**headers, **({"Authorization": f"Bearer {token}"} if token else {})}
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", headers=fields)


async def make_tokens(config: Config, names: list[str] | None = None) -> dict[str, str]:
    """A token per role, each with its role's name, made as the command line makes them."""
    db = Database(config.database_url)
    try:
        await db.init_schema()
        async with open_journal(db.store) as journal:
            made = {name: await create_token(journal, name=name, role=Role(name)) for name in names or ROLES}
        return {name: new.token for name, new in made.items()}
    finally:
        await db.dispose()


@asynccontextmanager
async def open_api(folder: Path, options: ServerOptions = FAST, **settings: Any) -> AsyncIterator[Api]:
    repo, gates = folder / "work" / "repo", folder / "gates"
    if not repo.exists():
        make_repository(repo)
        gates.mkdir()
    use_note_agents(gates)
    settings.setdefault("data_dir", folder / "data")
    config = load_config(workspace_root=folder / "work", **settings)
    tokens = await make_tokens(config)
    app = create_app(config, options=options)
    async with app.router.lifespan_context(app):
        api = Api(app, config, {}, tokens, repo, gates)
        for role, token in tokens.items():
            api.clients[role] = api.client(token)
        api.clients["nobody"] = api.client()
        yield api
        for client in api.clients.values():
            await client.aclose()
