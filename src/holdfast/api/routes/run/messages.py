"""Messages of people in a conversation.

What a person says is an event of the run, so it is stored before anyone is woken, and an answer under way hears of it
before its next step. The answers are read as any run's events are.
"""

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from holdfast.api.http.auth import Operator
from holdfast.api.http.openapi import WRITE_ONE
from holdfast.api.image_data import Images, to_images
from holdfast.api.schemas import MessageText, RunIdPath, RunRef, ShortText
from holdfast.api.server.run_requests import write_and_wake
from holdfast.api.server.server import Server, ServerDep
from holdfast.engine.conversation.journal import ROLE, is_conversation, message_event, read_conversation
from holdfast.engine.conversation.persona_choice import with_model
from holdfast.engine.run.create import check_seen
from holdfast.engine.run.load import LoadedRun, load_run
from holdfast.enums import RunStatus
from holdfast.errors import RunNotInState
from holdfast.persistence.statements import insert_images
from holdfast.persona import AgentPersona

router = APIRouter(prefix="/api/runs", tags=["conversations"])


class SendMessage(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"text": "And the tests?"}]})
    text: MessageText
    persona: ShortText | None = Field(default=None, description="Who answers from here on.")
    model: Annotated[ShortText | None, Field(min_length=1)] = Field(
        default=None, description="On which model, from here on."
    )
    images: Images = Field(default_factory=list)


class SentMessage(RunRef):
    seq: int = Field(description="The message's number in the journal; follow the events from here for the answer.")


@router.post("/{run_id}/messages", status_code=202, responses=WRITE_ONE, summary="Say something in a conversation")
async def send(run_id: RunIdPath, body: SendMessage, server: ServerDep, identity: Operator) -> SentMessage:
    """Send a message. An answer under way is told before its next step; else the conversation goes on with this."""
    loaded = await load_run(server.db, run_id, ())
    if not is_conversation(loaded.template):
        raise RunNotInState(
            f"Run {run_id} is no conversation; its agents are told their phase and nothing else.",
            hint="Ask for changes at an approval, or fork it with other requirements.",
        )
    images = to_images(body.images)
    persona = await _find_persona(server, loaded, body)
    if images:
        check_seen(images, [persona or await _find_partner(server, loaded)], server.config)
    message = message_event(loaded.run_id, body.text, persona=persona, by=identity.name, images=images)
    seq = await write_and_wake(server, loaded.run_id, message, insert_images(loaded.run_id, images))
    return SentMessage(run_id=loaded.run_id, state=RunStatus(loaded.stored.run.state), seq=seq)


async def _find_partner(server: Server, loaded: LoadedRun) -> AgentPersona:
    """Return who answers as things stand."""
    conversation = await read_conversation(server.db, loaded.run_id)
    return conversation.persona_at(conversation.messages, loaded.personas[ROLE])


async def _find_persona(server: Server, loaded: LoadedRun, body: SendMessage) -> AgentPersona | None:
    """Return who answers from here on, where that is to change."""
    if body.persona is None and body.model is None:
        return None
    if body.persona is not None:
        repo = await server.engines.resolve_repository(loaded.stored.run.repo_path)
        persona, _ = await server.engines.choose_persona(repo, body.persona, is_simulated=False)
    else:
        persona = await _find_partner(server, loaded)
    return persona if body.model is None else with_model(persona, body.model)
