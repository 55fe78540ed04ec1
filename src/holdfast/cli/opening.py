"""From settings to an engine that is ready to work, for the commands that change something."""

import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path

from holdfast.binding import BackendAvailability, PersonaConsentStore
from holdfast.catalog import Catalog
from holdfast.config import Config, load_config
from holdfast.engine.lifecycle import WorkflowEngine
from holdfast.engine.scope import ApprovalCallback, ApprovalRequest
from holdfast.enums import ApprovalDecisionAction, Backend
from holdfast.persistence.db import Database
from holdfast.persona import AgentPersona


@contextlib.asynccontextmanager
async def open_engine(
    *, repo: Path | None = None, is_simulated: bool = False, callback: ApprovalCallback | None = None
) -> AsyncIterator[tuple[WorkflowEngine, Database, Config]]:
    """An engine on the configured database, which is made or brought up to date first."""
    config = load_config()
    catalog = Catalog.for_repository(repo, config.config_dir)
    personas = [entry.definition for entry in catalog.list_personas()]
    backends = {Backend.SIMULATED} if is_simulated else find_backends(personas, os.environ)
    db = Database(config.database_url)
    try:
        await db.init_schema()
        engine = WorkflowEngine(
            db=db,
            config=config,
            persona_pool=personas,
            artifact_registry=catalog.artifact_registry(),
            consent_store=PersonaConsentStore(config.data_dir / "consents.json"),
            available_backends=BackendAvailability(available_backends=frozenset(backends)),
            approval_callback=callback,
        )
        yield engine, db, config
    finally:
        await db.dispose()


def find_backends(personas: Iterable[AgentPersona], environ: Mapping[str, str]) -> set[Backend]:
    """The backends that could work here: their key is set, or their program is on the path."""
    found: set[Backend] = set()
    for persona in personas:
        if persona.backend is Backend.SIMULATED:
            continue
        has_key = persona.key_variable is None or bool(environ.get(persona.key_variable))
        has_program = not persona.argv or shutil.which(persona.argv[0]) is not None
        if has_key and has_program:
            found.add(persona.backend)
    return found


class YesToAll:
    """The callback behind `--yes`: it approves everything, and the journal says that it was this."""

    by = "--yes"

    async def __call__(self, request: ApprovalRequest) -> ApprovalDecisionAction:
        return ApprovalDecisionAction.APPROVE
