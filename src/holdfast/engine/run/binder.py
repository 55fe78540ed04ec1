"""Who works in a run and where it starts: decided before it is made, or for what a person changes in it."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from holdfast.artifact_schema import ArtifactSchemaRegistry
from holdfast.binding import BackendAvailability, Binding, PersonaConsentStore, bind_personas
from holdfast.concurrency import in_remote_thread
from holdfast.config import Config
from holdfast.definitions.files import is_folder
from holdfast.engine.conversation.journal import is_conversation
from holdfast.engine.run.change import ChangeRequest
from holdfast.engine.run.create import DEFAULT_QUEUE, NewRun, RunRequest, check_seen, new_run_id, without_secrets
from holdfast.engine.run.load import LoadedRun
from holdfast.enums import Backend
from holdfast.errors import ConfigInvalid, QueueUnknown, did_you_mean
from holdfast.images import check_images
from holdfast.persona import AgentPersona
from holdfast.workflow import check_schemas
from holdfast.workspace import Start, find_start
from holdfast.workspace.transfer.remotes import check_remote, fetched_branch, is_remote


def to_availability(backends: BackendAvailability | Iterable[Backend] | None) -> BackendAvailability:
    """Return what is available as the binding takes it."""
    if isinstance(backends, BackendAvailability):
        return backends
    return BackendAvailability(available_backends=frozenset(backends or ()))


@dataclass(frozen=True)
class RunBinder:
    """The personas that there are, and which of them may be used."""

    config: Config
    personas: tuple[AgentPersona, ...]
    registry: ArtifactSchemaRegistry
    consent: PersonaConsentStore | None
    available: BackendAvailability

    async def bind_new(self, request: RunRequest) -> NewRun:
        """Decide everything about a new run, with nothing written.

        Raises `ConfigInvalid`, `TemplateInvalid`, `PersonaIneligible`, `ConsentRequired`, `BaseBranchMissing`,
        `ImageInvalid`, `ImageUnsupported`.
        """
        order = replace(request.order, queue=self._check_queue(request.order.queue))
        repository = self._find_repository(request)
        schemas: dict[str, Any] = {}
        if not is_conversation(request.template):
            check_schemas(request.template, self.registry)
            schemas = self.registry.collect(phase.expected_artifact.schema_id for phase in request.template.phases)
        bindings = bind_personas(
            request.template,
            self.personas,
            self.available,
            overrides=request.persona_overrides,
            consent_store=self.consent,
        )
        images = check_images(request.images)
        check_seen(images, [binding.persona for binding in bindings.values()], self.config)
        # The setting is about real money; a rehearsal has a limit if it is started with one.
        is_rehearsal = all(binding.backend is Backend.SIMULATED for binding in bindings.values())
        limit = request.budget_usd
        if limit is None and not is_rehearsal:
            limit = self.config.run_budget_usd
        # crash: nothing is written yet; the commit is fixed here, so that the run starts from what its maker saw.
        in_thread = in_remote_thread if is_remote(repository) else asyncio.to_thread
        start = await in_thread(lambda: self._find_start(repository, request.base_branch))
        new = NewRun(
            run_id=new_run_id(request.pre_allocated_run_id),
            template=request.template,
            bindings=bindings,
            repo_path=repository,
            base_branch=start.name,
            base_commit=start.commit,
            requirements_md=request.requirements_md,
            budget_micros=None if limit is None else round(Decimal(str(limit)) * 1_000_000),
            title=request.title,
            started_by=request.started_by,
            is_unsandboxed=request.is_unsandboxed,
            order=order,
            schemas=schemas,
            images=images,
            labels=[image.label for image in images],
        )
        return without_secrets(new)

    def _check_queue(self, queue: str) -> str:
        """Return the queue of a run that names this one, or none. Raises `QueueUnknown`."""
        if queue and queue not in self.config.queues:
            known = f"The setting `queues` has {', '.join(self.config.queues)}."
            raise QueueUnknown(f"There is no queue {queue!r}.{did_you_mean(queue, self.config.queues)}", hint=known)
        return queue or next(iter(self.config.queues), DEFAULT_QUEUE)

    def _find_start(self, repository: str, base_branch: str | None) -> Start:
        data_dir = self.config.data_dir
        if not is_remote(repository):
            return find_start(Path(repository).resolve(), base_branch, data_dir=data_dir)
        with fetched_branch(repository, base_branch, data_dir) as (copy, branch):
            return find_start(copy, branch, data_dir=data_dir)

    def _find_repository(self, request: RunRequest) -> str:
        """Return the repository as the run's row names it. Raises `RepositoryNotAllowed`, `ConfigInvalid`."""
        repository = str(request.repo_path)
        if is_remote(repository):
            check_remote(repository, allowed=self.config.allowed_repositories)
            return repository
        path = Path(request.repo_path).expanduser().absolute()
        if not is_folder(path):
            raise ConfigInvalid(
                f"{path} is no folder.", hint="Name a repository or a folder with files.", key="repo_path"
            )
        return str(path)

    def bind_changed(self, loaded: LoadedRun, change: ChangeRequest) -> dict[str, Binding]:
        """Bind the roles that a change names. A rehearsal stays one: its money is not counted as money."""
        rehearsal = BackendAvailability(available_backends=frozenset({Backend.SIMULATED}))
        bindings = bind_personas(
            loaded.template,
            self.personas,
            rehearsal if loaded.stored.run.is_simulated else self.available,
            overrides=change.persona_overrides,
            consent_store=self.consent,
            is_partial=True,
        )
        personas = {**loaded.personas, **{role: binding.persona for role, binding in bindings.items()}}
        check_seen(change.images, [*personas.values()], self.config)
        return bindings
