"""From settings to an engine that is ready to work, for the commands that change something."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

from holdfast.catalog import Catalog
from holdfast.config import Config, load_config
from holdfast.consent import PersonaConsentStore, open_consents
from holdfast.engine.scope import ApprovalCallback, ApprovalRequest
from holdfast.engine.workflow_engine import WorkflowEngine
from holdfast.enums import ApprovalDecisionAction
from holdfast.fleet.job_rows import make_job_writer
from holdfast.keys import hide_environment
from holdfast.persistence.db import Database
from holdfast.readiness import AgreedDefinitions, find_available, open_readiness


class OpenEngine(NamedTuple):
    """An engine that is ready to work, with its database and its settings."""

    engine: WorkflowEngine
    db: Database
    config: Config


@contextlib.asynccontextmanager
async def open_engine(
    *,
    repo: Path | None = None,
    is_simulated: bool = False,
    callback: ApprovalCallback | None = None,
    consents: PersonaConsentStore | None = None,
    agreed: AgreedDefinitions | None = None,
    is_leaving: bool = False,
) -> AsyncIterator[OpenEngine]:
    """Open an engine on the configured database, which is made or brought up to date first.

    With `agreed` nothing is read again: what is bound is what a person was asked about. With `is_leaving` those who
    drive runs are told of what is made or answered here, and a persona that is named may be ready there alone.
    """
    hide_environment()
    config = load_config()
    catalog = Catalog.for_repository(repo, config.config_dir)
    consents = consents or open_consents(config)
    if agreed is None:
        entries = catalog.list_personas_if_whole()
        readiness = open_readiness(entries, config, repo=repo, consents=consents, is_elsewhere=is_leaving)
        agreed = AgreedDefinitions(entries, readiness)
    personas = [entry.definition for entry in agreed.entries]
    db = Database(config.database_url, connections=config.database_connections)
    try:
        await db.init_schema()
        engine = WorkflowEngine(
            db=db,
            config=config,
            persona_pool=personas,
            artifact_registry=catalog.artifact_registry(),
            consent_store=consents,
            available_backends=find_available(is_simulated=is_simulated, readiness=agreed.readiness),
            approval_callback=callback,
        )
        engine.jobs = make_job_writer(db) if is_leaving else None
        yield OpenEngine(engine, db, config)
    finally:
        await db.dispose()


class YesToAll:
    """The callback behind `--yes`: it approves everything, and the journal says that it was this."""

    by = "--yes"

    async def __call__(self, request: ApprovalRequest) -> ApprovalDecisionAction:
        return ApprovalDecisionAction.APPROVE
