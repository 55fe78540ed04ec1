"""A conversation that goes on until all is said, in a process that dies at a given point.

Three turns on a model server: files are written and changed, a command leaves something behind, and a message reaches
the agent in the middle of its second answer. The person is as durable as a person is: whoever goes on looks at what
was said, and says what comes next.
"""

import os
from pathlib import Path
from typing import Any

from tests.support.crash.workflow_child import RUN_ID, Points, watch
from tests.support.engine_world import CATALOG
from tests.support.model_server import Says, Script, asks, own_persona

import holdfast.agents.models.openai
import holdfast.engine.conversation.messages  # noqa: F401  (both imported before the fork)
from holdfast.agents.tools import shell
from holdfast.artifact_schema import ArtifactSchemaRegistry
from holdfast.binding import BackendAvailability
from holdfast.config import load_config
from holdfast.engine import WorkflowEngine
from holdfast.engine.conversation import driver
from holdfast.engine.conversation.driver import ConversationTurn
from holdfast.engine.conversation.journal import ROLE, conversation_template, read_conversation, send_message
from holdfast.enums import Backend, RunStatus
from holdfast.persistence.db import Database
from holdfast.persistence.runs import find_run
from holdfast.persona import load_persona_file

SAID = ("Write a greeting.", "Make it louder, and note that.", "Is that all?")
MEANWHILE = "And thank whoever reads it."
_SECOND_ANSWER = "chat/2/turn1/m0"
_PRICES = """
models:
  my-model:
    backend: openai_compatible
    id: my-model
    checked: 2026-01-01
    context_tokens: 100000
    max_output_tokens: 1000
    prices: {input: 1000000, output: 5000000}
"""


def script() -> Script:
    greeting = {"file_path": "/greeting.txt", "content": "hello\n"}
    louder = {"file_path": "/greeting.txt", "old_string": "hello", "new_string": "HELLO"}
    thanks = {"file_path": "/thanks.txt", "content": "Thank you.\n"}
    return {
        "": [
            asks(("write_file", greeting), ("read_file", {"file_path": "/app.py"})),
            Says("It is written."),
            asks(("edit_file", louder), ("execute", {"command": "echo louder >> notes.txt"})),
            asks(("write_file", thanks)),
            Says("It is louder, and thanks."),
            Says("That is all."),
        ]
    }


def prepare(folder: Path, address: str) -> None:
    """The user's own settings: a persona on this server, and what its model costs."""
    settings = folder / "config" / "holdfast"
    settings.mkdir(parents=True, exist_ok=True)
    (settings / "models.yaml").write_text(_PRICES)
    (folder / "mine.yaml").write_text(own_persona(address, "code_write, shell"))


async def talk_on(url: str, folder: Path, address: str, dies_at: int | None) -> dict[str, Any]:
    """Begin the conversation, or go on with it, until all is said and answered."""
    os.environ |= {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config")}
    prepare(folder, address)
    points = Points(dies_at)
    db = Database(url)
    watch(points, db)
    points.around(driver, "write_tree")
    points.around_async(shell, "run_spooled")
    _say_meanwhile(points, db)
    engine = WorkflowEngine(
        db=db,
        config=load_config(data_dir=folder / "data"),
        persona_pool=[load_persona_file(folder / "mine.yaml")],
        artifact_registry=ArtifactSchemaRegistry(roots=[CATALOG / "artifacts"]),
        available_backends=BackendAvailability(available_backends=frozenset({Backend.OPENAI_COMPATIBLE})),
    )
    while not await _go_on(engine, db, folder / "repo"):
        pass
    stored = await find_run(db, RUN_ID)
    await db.dispose()
    return {"state": stored.run.state if stored else None, "points": points.names}


async def _go_on(engine: WorkflowEngine, db: Database, repo: Path) -> bool:
    """Do the next thing; true if there is none."""
    stored = await find_run(db, RUN_ID)
    if stored is None:
        template = conversation_template()
        await engine.run(template, repo_path=repo, pre_allocated_run_id=RUN_ID, persona_overrides={ROLE: "mine"})
        return False
    conversation = await read_conversation(db, RUN_ID)
    if stored.run.state != RunStatus.PAUSED or conversation.waiting:
        await engine.resume(RUN_ID)
        return False
    said = {message.text for message in conversation.messages.values()}
    following = next((text for text in SAID if text not in said), None)
    if following is not None:
        await send_message(db, RUN_ID, following, by="ann")
    return following is None


def _say_meanwhile(points: Points, db: Database) -> None:
    """Someone speaks while the second answer is under way: once, whoever makes it, and always at the same place."""
    read_waiting = ConversationTurn._read_waiting

    async def speak_first(turn: ConversationTurn) -> Any:
        events = db.store.list_events(RUN_ID)
        is_answering = any(event.payload.get("key") == _SECOND_ANSWER for event in events)
        if is_answering and not any(event.payload.get("text") == MEANWHILE for event in events):
            points.pass_by("before the message in between")
            await send_message(db, RUN_ID, MEANWHILE, by="ben")
            points.pass_by("after the message in between")
        return await read_waiting(turn)

    ConversationTurn._read_waiting = speak_first  # type: ignore[method-assign]  # this process is for one try
