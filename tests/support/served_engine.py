"""An engine whose agents are real, on a model server of the test's: the framework, the client and HTTP included."""

import asyncio
from typing import Any

from tests.support.engine_world import CATALOG, World, template
from tests.support.model_server import ModelServer

from holdfast.artifact_schema import ArtifactSchemaRegistry
from holdfast.binding import BackendAvailability
from holdfast.config import load_config
from holdfast.engine import WorkflowEngine
from holdfast.engine.results import RunResult
from holdfast.enums import Backend, Capability
from holdfast.persistence.db import Database
from holdfast.persona import AgentPersona
from holdfast.workflow import WorkflowTemplate

RUN_ID = "5eed0000-0000-4000-8000-000000000002"


def served_persona(server: ModelServer, **options: Any) -> AgentPersona:
    return AgentPersona(
        **{
            "name": "served",
            "version": 1,
            "backend": Backend.OPENAI_COMPATIBLE,
            "model": "my-model",
            "base_url": server.address,
            "capabilities": (Capability.SPEC_WRITE, Capability.SHELL),
            "system_prompt": "You work.",
            "tries": 1,
            **options,
        }
    )


class ServedEngine:
    """Starts one run on a model server and interrupts it, as another process would."""

    def __init__(self, world: World, server: ModelServer, callback: Any = None, **persona: Any) -> None:
        self._world = world
        self._callback = callback
        self.server = server
        self._persona = served_persona(server, **persona)

    def open(self, db: Database | None = None) -> WorkflowEngine:
        return WorkflowEngine(
            db=db or self._world.open_database(),
            config=load_config(data_dir=self._world.data_dir),
            persona_pool=(self._persona,),
            artifact_registry=ArtifactSchemaRegistry(roots=[CATALOG / "artifacts"]),
            available_backends=BackendAvailability(available_backends=frozenset({self._persona.backend})),
            approval_callback=self._callback,
        )

    def start(self, *phases: Any, approves: bool = False, **options: Any) -> "asyncio.Task[RunResult]":
        """Start a run of these phases; with `approves` a person allows the commands that the policy asks about."""
        return asyncio.create_task(self._drive(template(*phases, **options), approves=approves))

    async def _drive(self, made: WorkflowTemplate, *, approves: bool) -> RunResult:
        engine = self.open()
        result = await engine.run(made, repo_path=self._world.repo, pre_allocated_run_id=RUN_ID)
        while approves and result.waiting_for == "approval":
            for row in await self._world.approvals(RUN_ID):
                await engine.decide(RUN_ID, row.id, "approve", by="ann")
            result = await engine.resume(RUN_ID)
        return result
