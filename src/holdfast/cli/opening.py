"""From settings to an engine that is ready to work, for the commands that change something."""

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from holdfast.binding import BackendAvailability, PersonaConsentStore, find_backends
from holdfast.catalog import Catalog
from holdfast.config import Config, load_config
from holdfast.engine.lifecycle import WorkflowEngine
from holdfast.engine.scope import ApprovalCallback, ApprovalRequest
from holdfast.enums import ApprovalDecisionAction, Backend
from holdfast.persistence.db import Database


@contextlib.asynccontextmanager
async def open_engine(
    *,
    repo: Path | None = None,
    is_simulated: bool = False,
    callback: ApprovalCallback | None = None,
    consents: PersonaConsentStore | None = None,
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
            consent_store=consents or open_consents(config),
            available_backends=BackendAvailability(available_backends=frozenset(backends)),
            approval_callback=callback,
        )
        yield engine, db, config
    finally:
        await db.dispose()


def open_consents(config: Config) -> PersonaConsentStore:
    return PersonaConsentStore(config.data_dir / "consents.json")


class YesToAll:
    """The callback behind `--yes`: it approves everything, and the journal says that it was this."""

    by = "--yes"

    async def __call__(self, request: ApprovalRequest) -> ApprovalDecisionAction:
        return ApprovalDecisionAction.APPROVE
