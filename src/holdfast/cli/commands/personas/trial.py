"""A trial of a command persona: a real run of one phase in a scratch repository, with a data folder of its own."""

import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.artifact_schema import ArtifactSchemaRegistry
from holdfast.config import load_config
from holdfast.consent import AnyConsent
from holdfast.engine.workflow_engine import WorkflowEngine
from holdfast.enums import RunStatus
from holdfast.persistence.db import Database
from holdfast.persona import AgentPersona
from holdfast.readiness import find_available
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.stores import open_store
from holdfast.workflow import WorkflowTemplate
from holdfast.workspace.files import remove_folder

_LAST_LINES = 5
_SCHEMA = {"type": "object", "required": ["greeting"], "properties": {"greeting": {"const": "hello"}}}
_TEMPLATE = {
    "name": "trial",
    "version": 1,
    "roles": [{"id": "agent", "required_capabilities": ["code_write"]}],
    "phases": [
        {
            "key": "try",
            "title": "Say hello",
            "role": "agent",
            "risk": "low",
            "approval": "never",
            "timeout_seconds": 600,
            "instructions": "Write the artifact, with the greeting hello. Change nothing else.",
            "expected_artifact": {"path": ".holdfast/results/hello.json", "schema": "trial/hello@1"},
        }
    ],
}


class Trial(NamedTuple):
    """How a trial ended, in a sentence, and what was noticed."""

    is_passed: bool
    finding: str
    notes: tuple[str, ...]


async def try_persona(persona: AgentPersona) -> Trial:
    """Let a persona do the small task; nothing of it stays. Costs what the agent costs."""
    data_dir = load_config().data_dir
    data_dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="trial-", dir=data_dir))
    try:
        return await _run(persona, folder)
    finally:
        remove_folder(folder)


async def _run(persona: AgentPersona, folder: Path) -> Trial:
    repo, schema = folder / "repo", folder / "schemas" / "trial" / "hello@1.json"
    for place in (repo, schema.parent):
        place.mkdir(parents=True)
    (repo / "README.md").write_text("# A scratch repository\n")
    schema.write_text(json.dumps(_SCHEMA))
    config = load_config(data_dir=str(folder / "data"), database_url=f"sqlite+aiosqlite:///{folder}/trial.db")
    db = Database(config.database_url)
    try:
        await db.init_schema()
        engine = WorkflowEngine(
            db=db,
            config=config,
            persona_pool=[persona],
            artifact_registry=ArtifactSchemaRegistry(roots=[folder / "schemas"]),
            consent_store=AnyConsent(),
            available_backends=find_available(is_simulated=False),
        )
        result = await engine.run(WorkflowTemplate.model_validate(_TEMPLATE), repo_path=repo)
    finally:
        await db.dispose()
    store = open_store(config.database_url)
    try:
        events = store.list_events(str(result.run_id))
    finally:
        store.close()
    if result.state is RunStatus.COMPLETED:
        return Trial(True, "It did the task and left the artifact.", tuple(_find_notes(persona, events)))
    error = result.error
    message = getattr(error, "message", None) or (error.get("message") if isinstance(error, dict) else None) or error
    return Trial(False, f"It did not do the task: {message}", tuple(_find_output(events)))


def _find_output(events: list[Event]) -> list[str]:
    """Return the last lines that the agent printed."""
    text = "".join(str(event.payload.get("text") or "") for event in events if event.kind == EventKind.TEXT_DELTA)
    return [line for line in text.splitlines() if line.strip()][-_LAST_LINES:]


def _find_notes(persona: AgentPersona, events: list[Event]) -> list[str]:
    progress = [event.payload for event in events if event.kind == EventKind.AGENT_PROGRESS]
    sessions = {str(payload["session"]) for payload in progress if payload.get("session")}
    tools = sum(bool(payload.get("tool")) for payload in progress)
    results = [event.payload.get("result") for event in events if event.kind == EventKind.TOOL_RESULT]
    usage: dict[str, Any] = next(
        (result["usage"] for result in results if isinstance(result, dict) and result.get("usage")), {}
    )
    notes = [f"as {persona.adapter}" if persona.adapter else "as a program that holdfast does not know"]
    if usage:
        notes.append(f"it reports {usage.get('input_tokens', 0)} and {usage.get('output_tokens', 0)} tokens")
    else:
        notes.append("it reports no usage: set cost_per_run_usd, so that the budget counts it")
    if tools:
        notes.append(f"it reported {tools} tool calls while it ran")
    end = "is continued" if sessions else "cannot be continued: a person is asked, or the attempt has failed"
    notes.append(f"if it is killed, it {end}")
    return notes
