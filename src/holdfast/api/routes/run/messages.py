"""Messages of people, in a conversation or to the agent of a phase that works.

What a person says is an event of the run, so it is stored before anyone is woken, and an answer under way hears of it
before its next step. The answers are read as any run's events are.
"""

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from holdfast.api.http.auth import Operator
from holdfast.api.http.openapi import WRITE_ONE
from holdfast.api.image_data import Images
from holdfast.api.schemas import MessageText, RunIdPath, RunRef, ShortText
from holdfast.api.server.message_files import MessageContent, include_mentioned
from holdfast.api.server.run_requests import write_and_wake
from holdfast.api.server.server import Server, ServerDep
from holdfast.engine.conversation.journal import (
    ROLE,
    is_conversation,
    message_event,
    read_conversation,
    to_phase_message,
)
from holdfast.engine.conversation.persona_choice import with_model
from holdfast.engine.run.create import check_seen
from holdfast.engine.run.load import LoadedRun, load_run
from holdfast.enums import Backend, RunPhaseState, RunStatus
from holdfast.errors import HoldfastError, RunNotInState
from holdfast.persistence.statements import insert_images
from holdfast.persona import AgentPersona
from holdfast.presentation.message_box import DEAF_HINT, describe_deafness
from holdfast.workflow import Phase

router = APIRouter(prefix="/api/runs", tags=["conversations"])


class SendMessage(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"text": "And the tests?"}]})
    text: MessageText
    phase: ShortText | None = Field(default=None, description="Whose agent is meant, where several phases work.")
    persona: ShortText | None = Field(default=None, description="Who answers from here on.")
    model: Annotated[ShortText | None, Field(min_length=1)] = Field(
        default=None, description="On which model, from here on."
    )
    images: Images = Field(default_factory=list)


class SentMessage(RunRef):
    seq: int = Field(description="The message's number in the journal; follow the events from here for the answer.")


@router.post("/{run_id}/messages", status_code=202, responses=WRITE_ONE, summary="Say something to an agent")
async def send(run_id: RunIdPath, body: SendMessage, server: ServerDep, identity: Operator) -> SentMessage:
    """Send a message. An agent at work reads it before its next call; else the conversation goes on with this.

    `@path` takes a file of the repository along, if its persona may read it.
    """
    loaded = await load_run(server.db, run_id, ())
    state = RunStatus(loaded.stored.run.state)
    if not is_conversation(loaded.template):
        phase = _find_phase(loaded, body.phase)
        if (persona := loaded.personas.get(phase.role)) is not None and persona.backend is Backend.COMMAND:
            raise RunNotInState(describe_deafness([phase.key]), hint=DEAF_HINT)
        content, images = await _include_files(server, loaded, body, persona)
        if images:
            check_seen(images, [loaded.personas[phase.role]], server.config)
        message = message_event(loaded.run_id, body.text, content=content, by=identity.name, images=images)
        message = to_phase_message(message, phase.key)
        (stored,) = await server.journal.append(loaded.run_id, [message], rows=insert_images(loaded.run_id, images))
        return SentMessage(run_id=loaded.run_id, state=state, seq=stored.seq)
    persona = await _find_persona(server, loaded, body)
    content, images = await _include_files(server, loaded, body, persona or loaded.personas.get(ROLE))
    if images:
        check_seen(images, [persona or await _find_partner(server, loaded)], server.config)
    message = message_event(loaded.run_id, body.text, content=content, persona=persona, by=identity.name, images=images)
    seq = await write_and_wake(server, loaded.stored.run, message, insert_images(loaded.run_id, images))
    return SentMessage(run_id=loaded.run_id, state=state, seq=seq)


def _find_phase(loaded: LoadedRun, key: str | None) -> Phase:
    """Return the phase whose agent is meant. Raises `RunNotInState` unless it works."""
    rows = loaded.stored.phases.values() if loaded.stored.run.state == RunStatus.RUNNING else ()
    working = [row.phase_key for row in rows if row.state == RunPhaseState.RUNNING]
    if key in working or (key is None and len(working) == 1):
        return loaded.template.phase(key or working[0])
    if key is None and working:
        raise RunNotInState("Several phases are at work.", hint=f"Say which is meant: {', '.join(working)}.")
    raise RunNotInState(
        f"Nobody works on {f'phase {key!r} of ' if key else ''}run {loaded.run_id} who could read a message.",
        hint="Ask for changes at an approval, or fork it with other requirements.",
    )


async def _include_files(
    server: Server, loaded: LoadedRun, body: SendMessage, persona: AgentPersona | None
) -> MessageContent:
    try:
        folder = (await server.engines.resolve_repository(loaded.stored.run.repo_path)).folder
    except HoldfastError:
        folder = None  # it is not on this machine
    return await include_mentioned(body.text, body.images, folder=folder, persona=persona)


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
        persona, _ = await server.engines.choose_persona(repo.folder, body.persona, is_simulated=False)
    else:
        persona = await _find_partner(server, loaded)
    return persona if body.model is None else with_model(persona, body.model)
