"""Conversations over HTTP: begin one, and say something to whoever answers.

What a person says is an event of the run, so it is kept before anyone is woken, and an answer under way hears of it
before its next step. The answers are read as any run's events are.
"""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from holdfast.api.http.auth import Operator
from holdfast.api.http.openapi import WRITE_ONE
from holdfast.api.schemas import BranchName, IdempotencyKey, RunIdPath, RunRef, ServerDep, ShortText, Text, Usd
from holdfast.api.server.run_requests import RequestKey, start_once, write_and_wake
from holdfast.api.server.server import Server
from holdfast.engine.conversation.journal import (
    ROLE,
    conversation_template,
    is_conversation,
    message_event,
    read_conversation,
)
from holdfast.engine.conversation.persona_choice import with_model
from holdfast.engine.run.load import LoadedRun, load_run
from holdfast.enums import Backend, RunStatus
from holdfast.errors import RunNotInState
from holdfast.persona import AgentPersona
from holdfast.runtime.checkpoint.base import Statement

router = APIRouter(tags=["conversations"])
_TITLE_CHARACTERS = 60
Said = Annotated[Text, Field(min_length=1, max_length=200_000, description="What the agent is told.")]


class StartConversation(BaseModel):
    """The first message, and who it is for."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"repo_path": "/srv/code/shop", "text": "Where are prices rounded?", "simulate": True}]
        },
    )
    repo_path: Annotated[Text, Field(min_length=1, max_length=4000, description="A folder under the workspace root.")]
    text: Said
    base_branch: BranchName | None = Field(
        default=None, description="The branch to start from; else the one that is checked out."
    )
    persona: ShortText | None = Field(default=None, description="Who answers; else the best that can, as here.")
    simulate: bool = Field(default=False, description="Talk with the simulated model.")
    budget_usd: Usd | None = None


class SendMessage(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"text": "And the tests?"}]})
    text: Said
    persona: ShortText | None = Field(default=None, description="Who answers from here on.")
    model: Annotated[ShortText | None, Field(min_length=1)] = Field(
        default=None, description="On which model, from here on."
    )


class SentMessage(RunRef):
    seq: int = Field(description="The message's number in the journal; follow the events from here for the answer.")


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
        persona, readiness = await server.engines.choose_persona(repo, body.persona, is_simulated=body.simulate)
        engine = await server.engines.for_repository(
            repo, is_simulated=persona.backend is Backend.SIMULATED, readiness=readiness
        )
        await engine.create(
            conversation_template(),
            repo_path=repo,
            base_branch=body.base_branch,
            pre_allocated_run_id=run_id,
            persona_overrides={ROLE: persona.name},
            budget_usd=body.budget_usd,
            title=" ".join(body.text.split())[:_TITLE_CHARACTERS],
            started_by=identity.name,
            beside=beside,
            then=[message_event(run_id, body.text, by=identity.name)],
        )

    run_id = await start_once(server, body, make, RequestKey(identity.name, idempotency_key))
    return RunRef(run_id=run_id, state=RunStatus.PENDING)


@router.post(
    "/api/runs/{run_id}/messages", status_code=202, responses=WRITE_ONE, summary="Say something in a conversation"
)
async def send(run_id: RunIdPath, body: SendMessage, server: ServerDep, identity: Operator) -> SentMessage:
    """Send a message. An answer under way is told before its next step; else the conversation goes on with this."""
    loaded = await load_run(server.db, run_id, ())
    if not is_conversation(loaded.template):
        raise RunNotInState(
            f"Run {run_id} is no conversation; its agents are told their phase and nothing else.",
            hint="Ask for changes at an approval, or fork it with other requirements.",
        )
    persona = await _find_persona(server, loaded, body)
    message = message_event(loaded.run_id, body.text, persona=persona, by=identity.name)
    seq = await write_and_wake(server, loaded.run_id, message)
    return SentMessage(run_id=loaded.run_id, state=RunStatus(loaded.stored.run.state), seq=seq)


async def _find_persona(server: Server, loaded: LoadedRun, body: SendMessage) -> AgentPersona | None:
    """Return who answers from here on, where that is to change."""
    if body.persona is None and body.model is None:
        return None
    if body.persona is not None:
        repo = await server.engines.resolve_repository(loaded.stored.run.repo_path)
        persona, _ = await server.engines.choose_persona(repo, body.persona, is_simulated=False)
    else:
        conversation = await read_conversation(server.db, loaded.run_id)
        persona = conversation.persona_at(conversation.messages, loaded.personas[ROLE])
    return persona if body.model is None else with_model(persona, body.model)
