"""Runs as rows of the contract's columns and nothing else, as a program outside the project would insert them."""

import uuid
from typing import Any

from tests.support.engine_world import World, personas, template

from holdfast.persistence.models import AgentPersonaRow, RunBindingRow, RunPhaseRow, RunRow, WorkflowTemplateRow
from holdfast.workflow import WorkflowTemplate

AT = "2026-01-02T03:04:05Z"


async def insert_run(
    world: World,
    phases: dict[str, str],
    *,
    state: str = "running",
    definition: Any = None,
    has_bindings: bool = True,
    repo_path: str | None = None,
) -> str:
    """Insert a run whose phases are in the given states, and return its id."""
    run_id, template_id, persona_id = (str(uuid.uuid4()) for _ in range(3))
    made: WorkflowTemplate = world.know(template(*phases))
    persona = next(item for item in personas() if item.name == "openrouter-deepseek-spec-writer")
    async with world.db.session() as session:
        session.add(
            WorkflowTemplateRow(
                id=template_id,
                name=made.name,
                version=str(made.version),
                hash=f"hash-{template_id}",
                definition=made.model_dump(by_alias=True) if definition is None else definition,
                created_at=AT,
            )
        )
        session.add(
            AgentPersonaRow(
                id=persona_id,
                name=persona.name,
                version=str(persona.version),
                hash=f"hash-{persona_id}",
                definition=persona.model_dump(by_alias=True),
                created_at=AT,
            )
        )
        await session.flush()
        session.add(
            RunRow(
                id=run_id,
                template_id=template_id,
                template_hash=f"hash-{template_id}",
                state=state,
                repo_path=repo_path or str(world.repo),
                base_branch="main",
                worktree_root=str(world.folder / "nowhere"),
                created_at=AT,
                updated_at=AT,
            )
        )
        await session.flush()
        for key, phase_state in phases.items():
            session.add(RunPhaseRow(run_id=run_id, phase_key=key, state=phase_state, started_at=AT, ended_at=None))
        if has_bindings:
            session.add(
                RunBindingRow(
                    id=str(uuid.uuid4()),
                    run_id=run_id,
                    role_id="author",
                    persona_id=persona_id,
                    persona_hash=f"hash-{persona_id}",
                    backend="openrouter",
                    binding_hash="bound",
                )
            )
        await session.commit()
    return run_id
