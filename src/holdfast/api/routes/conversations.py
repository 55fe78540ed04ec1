"""Conversations over HTTP: begin one. What is said in it later are messages of its run (`run/messages.py`)."""

from collections.abc import Sequence

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from holdfast.api.http.auth import Operator
from holdfast.api.http.openapi import WRITE_ONE
from holdfast.api.image_data import Images
from holdfast.api.schemas import (
    BranchName,
    Flag,
    IdempotencyKey,
    MessageText,
    RepositoryName,
    RunRef,
    ShortText,
    Usd,
)
from holdfast.api.server.message_files import include_mentioned
from holdfast.api.server.run_requests import RequestKey, start_once
from holdfast.api.server.server import ServerDep
from holdfast.engine.conversation.journal import ROLE, conversation_template, message_event
from holdfast.engine.run.create import check_seen
from holdfast.enums import Backend, RunStatus
from holdfast.persistence.statements import insert_images
from holdfast.runtime.checkpoint.base import Statement

router = APIRouter(tags=["conversations"])
_TITLE_CHARACTERS = 60


class StartConversation(BaseModel):
    """The first message, and who it is for."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"repo_path": "/srv/code/shop", "text": "Where are prices rounded?", "simulate": True}]
        },
    )
    repo_path: RepositoryName
    text: MessageText
    base_branch: BranchName | None = Field(
        default=None, description="The branch to start from; else the one that is checked out."
    )
    persona: ShortText | None = Field(default=None, description="Who answers; else the best that can, as here.")
    simulate: Flag = Field(default=False, description="Talk with the simulated model.")
    budget_usd: Usd | None = None
    images: Images = Field(default_factory=list)


@router.post("/api/conversations", status_code=202, responses=WRITE_ONE, summary="Begin a conversation")
async def start_conversation(
    body: StartConversation,
    server: ServerDep,
    identity: Operator,
    idempotency_key: IdempotencyKey = None,
) -> RunRef:
    """Begin a conversation: a run that is followed, paused (which interrupts the answer), merged and aborted as any."""

    async def make(run_id: str, beside: Sequence[Statement]) -> None:
        repo = await server.engines.resolve_repository(body.repo_path)
        persona, agreed = await server.engines.choose_persona(repo.folder, body.persona, is_simulated=body.simulate)
        engine = await server.engines.for_repository(
            repo.folder, is_simulated=persona.backend is Backend.SIMULATED, agreed=agreed
        )
        content, images = await include_mentioned(body.text, body.images, folder=repo.folder, persona=persona)
        check_seen(images, [persona], server.config)
        await engine.create(
            conversation_template(),
            repo_path=repo.name,
            base_branch=body.base_branch,
            pre_allocated_run_id=run_id,
            persona_overrides={ROLE: persona.name},
            budget_usd=body.budget_usd,
            title=" ".join(body.text.split())[:_TITLE_CHARACTERS],
            started_by=identity.name,
            beside=[*beside, *insert_images(run_id, images)],
            then=[message_event(run_id, body.text, content=content, by=identity.name, images=images)],
        )

    run_id = await start_once(server, body, make, RequestKey(identity.name, idempotency_key))
    return RunRef(run_id=run_id, state=RunStatus.PENDING)
