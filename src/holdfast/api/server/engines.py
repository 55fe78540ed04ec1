"""Engines for the repositories that requests name, each with the catalog that counts there."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.artifact_schema import ArtifactSchemaRegistry
from holdfast.catalog import Catalog, CatalogEntry, check_trust, list_used, trust_of
from holdfast.config import Config
from holdfast.consent import open_consents
from holdfast.engine.conversation.persona_choice import choose_persona
from holdfast.engine.workflow_engine import WorkflowEngine
from holdfast.errors import RepositoryMissing, RepositoryNotAllowed, TemplateNotFound, WorkspaceError
from holdfast.fleet.job_rows import make_job_writer
from holdfast.persistence.db import Database
from holdfast.persona import AgentPersona
from holdfast.readiness import AgreedDefinitions, Readiness, find_available, open_readiness
from holdfast.workflow import WorkflowTemplate
from holdfast.workspace.repository import find_repository, list_written_folders
from holdfast.workspace.transfer.remotes import check_remote, is_remote

_KEEP_S = 5.0  # reading two dozen files for each of many runs started together would hold them all up
_YAML = (".yaml", ".yml")


@dataclass(frozen=True)
class NamedRepository:
    """A repository that a request names: as a run's row has it, and the folder it is, whose definitions count.

    A URL has no folder here, so it brings no definitions.
    """

    name: str
    folder: Path | None


_Parts = tuple[list[CatalogEntry[AgentPersona]], ArtifactSchemaRegistry]


class Engines:
    """Makes the engine for a repository, and answers what its catalog and its trust allow."""

    def __init__(self, db: Database, config: Config) -> None:
        self._db = db
        self._config = config
        self._recent: dict[Path | None, tuple[float, _Parts]] = {}

    async def for_repository(
        self, repo: Path | None, *, is_simulated: bool = False, agreed: AgreedDefinitions | None = None
    ) -> WorkflowEngine:
        """Make an engine with the personas and schemas of this repository, the user and the package.

        A persona file that cannot be used is no reason to leave bound runs alone: `check_trust` tells whoever starts
        one. An engine that binds personas is given the ones that were `agreed` to; without them it may know files as
        they were some seconds ago.
        """
        entries, registry = await self._parts(repo)
        if agreed is not None:
            entries, readiness = list(agreed.entries), agreed.readiness
        else:
            readiness = await asyncio.to_thread(self.readiness, entries, repo)
        engine = WorkflowEngine(
            db=self._db,
            config=self._config,
            persona_pool=[entry.definition for entry in entries],
            artifact_registry=registry,
            consent_store=open_consents(self._config),
            available_backends=find_available(is_simulated=is_simulated, readiness=readiness),
        )
        engine.jobs = make_job_writer(self._db)
        return engine

    @property
    def spool_dir(self) -> Path:
        return self._config.data_dir / "spool"

    def catalog(self, repo: Path | None) -> Catalog:
        return Catalog.for_repository(repo, self._config.config_dir)

    async def find_catalog(self, repo_path: str | None) -> Catalog:
        """Return the catalog that counts for a request, with what the repository brings along if it names one."""
        return self.catalog(None if repo_path is None else (await self.resolve_repository(repo_path)).folder)

    async def find_workflow(self, repo: Path | None, name_or_file: str) -> WorkflowTemplate:
        """Load a workflow by name, or from a file of the repository itself.

        Raises `RepositoryNotAllowed`, `TemplateNotFound`.
        No other file is ever opened: what is wrong with a file is told to whoever named it.
        """
        return (await asyncio.to_thread(self._get_workflow, repo, name_or_file)).definition

    def _get_workflow(self, repo: Path | None, name_or_file: str) -> CatalogEntry[WorkflowTemplate]:
        if "/" in name_or_file or name_or_file.endswith(_YAML):
            if repo is None:
                message = "A workflow's file is looked for in the repository's folder."
                raise TemplateNotFound(message, hint="Name the folder first; with a URL, use a workflow's name.")
            path = (repo / name_or_file).resolve()
            if not path.is_relative_to(repo) or path.suffix not in _YAML:
                raise RepositoryNotAllowed(
                    "A workflow is named, or it is a YAML file inside the repository.",
                    hint="Use a name of GET /api/workflows.",
                )
            name_or_file = str(path)
        return self.catalog(repo).get_workflow(name_or_file)

    async def check_trust(
        self,
        repo: Path | None,
        name_or_file: str,
        *,
        is_simulated: bool,
        overrides: Mapping[str, str],
        readiness: Readiness | None = None,
        is_elsewhere: bool = False,
    ) -> tuple[WorkflowTemplate, AgreedDefinitions]:
        """Raise `ConsentRequired` unless whoever runs the server has agreed to the repository's own definitions.

        Returns the workflow and the personas as they were read and checked here, and who of them is ready: a run is
        made from these. `is_elsewhere` if workers drive it. Raises as `find_workflow` does.
        """

        def check() -> tuple[WorkflowTemplate, AgreedDefinitions]:
            workflow = self._get_workflow(repo, name_or_file)
            catalog = self.catalog(repo)
            entries = catalog.list_personas()
            ready = readiness or self.readiness(entries, repo, is_elsewhere=is_elsewhere)
            available = find_available(is_simulated=is_simulated, readiness=ready.before_trust(is_blind=True))
            used = list_used(catalog, workflow, available, overrides, entries=entries)
            check_trust(repo, used, open_consents(self._config))
            return workflow.definition, self._without_strangers(repo, entries, ready)

        return await asyncio.to_thread(check)

    async def check_persona_trust(self, repo: Path | None, names: Iterable[str]) -> AgreedDefinitions:
        """Raise `ConsentRequired` if one of these personas is the repository's own and nobody has agreed to it.

        Returns what a run may be bound from. A name that nobody has is told by the binding.
        """

        def check() -> AgreedDefinitions:
            named, entries = set(names), self.catalog(repo).list_personas()
            used = [entry for entry in entries if entry.definition.name in named]
            check_trust(repo, used, open_consents(self._config))
            return self._without_strangers(repo, entries, self.readiness(entries, repo))

        return await asyncio.to_thread(check)

    async def choose_persona(
        self, repo: Path | None, name: str | None, *, is_simulated: bool
    ) -> tuple[AgentPersona, AgreedDefinitions]:
        """Choose who answers in a conversation about this repository: the persona of this name, or the best there is.

        Returns also what the conversation may be bound from: this persona and no other. Raises as `get_persona` does.
        """

        def choose() -> tuple[AgentPersona, AgreedDefinitions]:
            entries, consents = self.catalog(repo).list_personas(), open_consents(self._config)
            ready = self.readiness(entries, repo)
            chosen = choose_persona(entries, repo, consents, name=name, is_simulated=is_simulated, readiness=ready)
            own = [entry for entry in entries if entry.definition.content_hash == chosen.content_hash]
            return chosen, AgreedDefinitions(own, ready)

        return await asyncio.to_thread(choose)

    def _without_strangers(
        self, repo: Path | None, entries: Sequence[CatalogEntry[AgentPersona]], readiness: Readiness
    ) -> AgreedDefinitions:
        is_trusted = trust_of(repo, entries, open_consents(self._config))
        return AgreedDefinitions([entry for entry in entries if is_trusted(entry.definition)], readiness)

    async def resolve_repository(self, repo_path: str) -> NamedRepository:
        """Return the repository that a request names: a URL, or a folder, links resolved.

        Raises `RepositoryNotAllowed` outside `workspace_root` and for a URL that `allowed_repositories` does not list,
        `RepositoryMissing` if there can be no such folder.
        """
        if is_remote(repo_path):
            check_remote(repo_path, allowed=self._config.allowed_repositories, is_request=True)
            return NamedRepository(repo_path, None)
        path, root = await asyncio.to_thread(lambda: (Path(repo_path).resolve(), self._config.workspace_root.resolve()))
        if not Path(repo_path).is_absolute() or not path.is_relative_to(root):
            raise RepositoryNotAllowed("The repository does not lie under the server's workspace root.")
        await asyncio.to_thread(_check_can_exist, path)
        await asyncio.to_thread(_check_git_directory, path, root)
        return NamedRepository(str(path), path)

    async def _parts(self, repo: Path | None) -> _Parts:
        recent = self._recent.get(repo)
        if recent is not None and time.monotonic() - recent[0] < _KEEP_S:
            return recent[1]
        parts = await asyncio.to_thread(self._load, repo)
        if len(self._recent) > 100:
            self._recent.clear()
        self._recent[repo] = (time.monotonic(), parts)
        return parts

    def _load(self, repo: Path | None) -> _Parts:
        catalog = self.catalog(repo)
        return catalog.list_personas_if_whole(), catalog.artifact_registry()

    def readiness(
        self, entries: Sequence[CatalogEntry[AgentPersona]], repo: Path | None, *, is_elsewhere: bool = False
    ) -> Readiness:
        """Find out who of these is ready where the server runs; who is named may be so where a worker does."""
        consents = open_consents(self._config)
        return open_readiness(entries, self._config, repo=repo, consents=consents, is_elsewhere=is_elsewhere)


def _check_can_exist(path: Path) -> None:
    """Raise `RepositoryMissing` for a path that the system does not even look for, such as one with too long a name."""
    try:
        path.exists()
    except OSError as error:
        raise RepositoryMissing(f"There is no repository at this path: {error.strerror}.", path=str(path)) from error


def _check_git_directory(path: Path, root: Path) -> None:
    """Raise `RepositoryNotAllowed` if a run on this folder would write to a repository that lies elsewhere."""
    try:
        repository = find_repository(path)
    except WorkspaceError:
        return  # what is wrong with it is told to whoever starts a run on it
    if repository is None:
        return
    # The server may stand in a subfolder of a repository: then that one is around the root, by its owner's choice.
    around = repository.checkout if repository.checkout and root.is_relative_to(repository.checkout.resolve()) else root
    if not all(folder.is_relative_to(around.resolve()) for folder in list_written_folders(repository)):
        raise RepositoryNotAllowed(
            "The folder belongs to a repository that does not lie under the server's workspace root.",
            hint="A .git file or link there leads elsewhere.",
        )
