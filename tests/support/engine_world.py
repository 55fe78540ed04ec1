"""An engine with a repository, a database and agents that do what a test tells them; nothing here needs a model.

Agents take their place through `holdfast.engine.build_agent`, and know of their phase what the contract says that an
envelope tells them: its own key, and nothing of later phases.
"""

import asyncio
import functools
import inspect
import json
import re
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sqlalchemy import select

import holdfast.catalog
import holdfast.engine
from holdfast.agents.tools.shell import probe_once
from holdfast.artifact_schema import ArtifactSchemaRegistry
from holdfast.binding import BackendAvailability, PersonaConsentStore
from holdfast.config import load_config
from holdfast.engine import RunResult, WorkflowEngine
from holdfast.enums import Backend
from holdfast.persistence.db import Database
from holdfast.persistence.models import ApprovalRow, ArtifactRow, LedgerRow, RunEventRow, RunPhaseRow, RunRow
from holdfast.persona import AgentPersona, load_personas_from_dir
from holdfast.workflow import WorkflowTemplate
from holdfast.workspace import SandboxProbe

CATALOG = Path(holdfast.catalog.__file__).parent
SCHEMA = "dev/spec@1"
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def phase(key: str, **options: Any) -> dict[str, Any]:
    return {
        "key": key,
        "title": f"The {key} phase",
        "risk": "low",
        "role": "author",
        "instructions": "Do what is wanted.",
        "timeout_seconds": 60,
        "expected_artifact": {"path": f"out/{key}.json", "schema": SCHEMA},
        **options,
    }


def template(*phases: dict[str, Any] | str, **options: Any) -> WorkflowTemplate:
    return WorkflowTemplate.model_validate(
        {
            "name": "tried-out",
            "version": 1,
            "description": "",
            "roles": [{"id": "author", "required_capabilities": ["spec_write"]}],
            "phases": [phase(item) if isinstance(item, str) else item for item in phases],
            **options,
        }
    )


def artifact(run_id: str, phase_key: str, **changes: Any) -> dict[str, Any]:
    return {
        "runId": run_id,
        "phaseKey": phase_key,
        "requirements": "What was asked for, in full.",
        "acceptance_criteria": ["it works"],
        "approach": "Step by step, carefully.",
        "risks": [],
        **changes,
    }


@functools.cache
def personas() -> tuple[AgentPersona, ...]:
    return tuple(load_personas_from_dir(CATALOG / "personas"))


# -- agents -----------------------------------------------------------------------------------------------------------


@dataclass
class Turn:
    """One call of an agent, as it sees it."""

    phase_key: str
    run_id: str
    root: Path
    middleware: list[Any]
    messages: list[dict[str, str]]
    persona: AgentPersona
    path: str

    @property
    def envelope(self) -> str:
        return self.messages[0]["content"]

    @property
    def is_repair(self) -> bool:
        return len(self.messages) > 1

    def hand_in(self, content: Any = None, **changes: Any) -> None:
        """Write the artifact: a valid one, unless told otherwise."""
        data = artifact(self.run_id, self.phase_key, **changes) if content is None else content
        self.write(self.path, data if isinstance(data, str) else json.dumps(data))

    def write(self, name: str, content: str) -> None:
        target = self.root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)

    async def use_tool(self, name: str, effect: Callable[[], Any], **args: Any) -> Any:
        """Drive the middleware directly, with a request of which only `tool_call` is real."""
        request = SimpleNamespace(tool_call={"name": name, "args": args, "id": f"call-{name}"})

        async def call(_request: Any) -> Any:
            result = effect()
            return await result if inspect.isawaitable(result) else result

        handler = call
        for middleware in reversed(self.middleware):
            handler = functools.partial(_wrapped, middleware.awrap_tool_call, handler)
        return await handler(request)

    async def use_model(
        self,
        text: str = "fine",
        *,
        tokens: tuple[int, int] = (100, 10),
        error: Exception | None = None,
        model: str = "rehearsal-1",
    ) -> Any:
        """Call a model through the middleware; the handler stands for the provider."""
        from langchain.agents.middleware import ModelRequest, ModelResponse
        from langchain_core.messages import AIMessage, HumanMessage

        used = {"input_tokens": tokens[0], "output_tokens": tokens[1], "total_tokens": sum(tokens)}
        chat_model: Any = SimpleNamespace(model=model, max_tokens=1000, _llm_type="fake")
        request = ModelRequest(
            model=chat_model, messages=[HumanMessage(text)], tools=[], tool_choice=None, model_settings={}
        )

        async def handler(_request: Any) -> Any:
            if error is not None:
                raise error
            return ModelResponse(result=[AIMessage(text, usage_metadata=used)])

        return await self.middleware[0].awrap_model_call(request, handler)


async def _wrapped(wrap: Callable[..., Awaitable[Any]], handler: Any, request: Any) -> Any:
    return await wrap(request, handler)


Script = Callable[[Turn], Any]


def hand_in(turn: Turn) -> None:
    turn.hand_in()


class Unserialisable:
    """What a tool may give back and no journal can hold."""

    def __init__(self, value: str = "") -> None:
        self.value = value
        self.me = self


# -- the world --------------------------------------------------------------------------------------------------------


@dataclass
class World:
    """One test's database, data directory and repository."""

    url: str
    folder: Path
    turns: list[Turn] = field(default_factory=list)
    is_damaged: bool = False
    """The test has damaged rows on purpose, so the check at its end does not count."""
    _open: list[Database] = field(default_factory=list)
    _keys: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.db = self.open_database()

    @property
    def data_dir(self) -> Path:
        return self.folder / "data"

    @property
    def repo(self) -> Path:
        return self.folder / "repo"

    def open_database(self) -> Database:
        """Another process's view of the same data, as far as one process can have it."""
        self._open.append(Database(self.url))
        return self._open[-1]

    async def close(self) -> None:
        for db in self._open:
            await db.dispose()

    def engine(
        self,
        script: Script = hand_in,
        *,
        callback: Any = None,
        db: Database | None = None,
        pool: tuple[AgentPersona, ...] | None = None,
        backends: frozenset[Backend] = frozenset({Backend.OPENROUTER}),
        schemas: Path = CATALOG / "artifacts",
        find_sandbox: Callable[[], SandboxProbe] = probe_once,
        **config: Any,
    ) -> WorkflowEngine:
        """An engine of its own, whose agents follow `script`; the last one made decides for all."""
        holdfast.engine.build_agent = functools.partial(self._build_agent, script)
        return WorkflowEngine(
            db=db or self.db,
            config=load_config(data_dir=self.data_dir, **config),
            persona_pool=personas() if pool is None else pool,
            artifact_registry=ArtifactSchemaRegistry(roots=[schemas]),
            consent_store=PersonaConsentStore(self.data_dir / "consent.json"),
            available_backends=BackendAvailability(available_backends=backends),
            approval_callback=callback,
            find_sandbox=find_sandbox,
        )

    async def run(
        self, script: Script = hand_in, *phases: Any, engine: dict[str, Any] | None = None, **options: Any
    ) -> RunResult:
        """Run a template of these phases; `engine` and `options` go to the engine and to its `run`."""
        made = options.pop("template", None) or template(*(phases or ("spec",)))
        self.know(made)
        return await self.engine(script, **(engine or {})).run(
            made, repo_path=options.pop("repo_path", self.repo), **options
        )

    async def run_and_stop(self, script: Script, *phases: Any, **options: Any) -> str:
        """Play the first turn that comes to the end of the script, end the drive there as a shutdown does."""
        reached = asyncio.Event()

        async def gated(turn: Turn) -> None:
            result = script(turn)
            if inspect.isawaitable(result):
                await result
            reached.set()
            await asyncio.Event().wait()

        known = set(self.db.store.list_runs())
        task = asyncio.create_task(self.run(gated, *phases, **options))
        waiting = asyncio.create_task(reached.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        assert not task.done(), task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        [run_id] = set(self.db.store.list_runs()) - known
        return run_id

    def know(self, made: WorkflowTemplate) -> WorkflowTemplate:
        """Tell the agents which phases there are, and where each hands in."""
        self._keys = [(key, made.phase(key).expected_artifact.path) for key in made.topological_order()]
        return made

    def _build_agent(
        self, script: Script, persona: AgentPersona, config: Any, *, root_dir: Path, middleware: list[Any], **_: Any
    ) -> Any:
        async def ainvoke(state: dict[str, Any], **_: Any) -> dict[str, Any]:
            envelope = state["messages"][0]["content"]
            key, path = next((key, path) for key, path in reversed(self._keys) if f"`{key}`" in envelope)
            run_id = _UUID.search(envelope)
            assert run_id is not None
            turn = Turn(key, run_id[0], root_dir, middleware, state["messages"], persona, path)
            self.turns.append(turn)
            result = script(turn)
            if inspect.isawaitable(result):
                result = await result
            return {"messages": []} if result is None else result

        return SimpleNamespace(ainvoke=ainvoke)

    # -- looking ------------------------------------------------------------------------------------------------------

    async def select(self, model: Any, run_id: Any, *order: Any) -> list[Any]:
        async with self.db.session() as session:
            query = select(model).where(model.run_id == str(run_id)).order_by(*order)
            return list(await session.scalars(query))

    async def run_row(self, run_id: Any) -> RunRow:
        async with self.db.session() as session:
            row = await session.get(RunRow, str(run_id))
            assert row is not None
            return row

    async def phase_states(self, run_id: Any) -> dict[str, str]:
        rows = await self.select(RunPhaseRow, run_id, RunPhaseRow.position)
        return {row.phase_key: row.state for row in rows}

    async def kinds(self, run_id: Any) -> list[str]:
        return [row.type for row in await self.select(RunEventRow, run_id, RunEventRow.seq)]

    def events(self, run_id: Any, kind: str = "") -> list[Any]:
        return [event for event in self.db.store.list_events(str(run_id)) if event.kind == kind or not kind]

    async def approvals(self, run_id: Any, state: str = "pending") -> list[ApprovalRow]:
        rows = await self.select(ApprovalRow, run_id, ApprovalRow.requested_at)
        return [row for row in rows if row.state == state or not state]

    async def artifacts(self, run_id: Any) -> list[ArtifactRow]:
        return await self.select(ArtifactRow, run_id, ArtifactRow.created_at, ArtifactRow.attempt, ArtifactRow.turn)

    async def ledger(self, run_id: Any) -> list[LedgerRow]:
        return await self.select(LedgerRow, run_id, LedgerRow.created_at)

    async def sql(self, statement: str, **values: Any) -> None:
        """Change rows past the engine."""
        from sqlalchemy import text

        async with self.db.session() as session:
            await session.execute(text(statement), values)
            await session.commit()

    def worktree(self, run_id: Any) -> Path:
        return self.data_dir / "worktrees" / str(run_id)

    def git(self, *args: str, folder: Path | None = None) -> str:
        return git(folder or self.repo, *args)

    def phases_done(self) -> list[str]:
        return [turn.phase_key for turn in self.turns]


def git(folder: Path, *args: str) -> str:
    command = ["git", "-c", "user.name=Owner", "-c", "user.email=owner@example.org", *args]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def make_repo(folder: Path) -> None:
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "app.py").write_text("print('hello')\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")


@contextmanager
def new_world(url: str, folder: Path, repo: Path) -> Iterator[World]:
    """A world with a copy of `repo`; `holdfast.engine.build_agent` is itself again afterwards."""
    shutil.copytree(repo, folder / "repo")
    original = holdfast.engine.build_agent
    try:
        yield World(url, folder)
    finally:
        holdfast.engine.build_agent = original
