"""Engines for the repositories that requests name, each with the catalog that counts there."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from holdfast.artifact_schema import ArtifactSchemaRegistry
from holdfast.catalog import Catalog, check_trust, list_used
from holdfast.config import Config
from holdfast.consent import open_consents
from holdfast.engine.conversation_partner import choose_persona
from holdfast.engine.lifecycle import WorkflowEngine
from holdfast.errors import RepositoryNotAllowed
from holdfast.persistence.db import Database
from holdfast.persona import AgentPersona
from holdfast.readiness import find_available
from holdfast.workflow import WorkflowTemplate

_KEEP_S = 5.0  # reading two dozen files for each of many runs started together would hold them all up
_YAML = (".yaml", ".yml")
_Parts = tuple[list[AgentPersona], ArtifactSchemaRegistry]


class Engines:
    def __init__(self, db: Database, config: Config) -> None:
        self._db = db
        self._config = config
        self._kept: dict[Path | None, tuple[float, _Parts]] = {}

    async def for_repository(self, repo: Path | None, *, is_simulated: bool = False) -> WorkflowEngine:
        """An engine with the personas and schemas of this repository, the user and the package.

        A persona file that cannot be used is no reason to leave bound runs alone: `check_trust` tells who starts one.
        """
        personas, registry = await self._parts(repo)
        available = await asyncio.to_thread(find_available, personas, is_simulated=is_simulated)
        return WorkflowEngine(
            db=self._db,
            config=self._config,
            persona_pool=personas,
            artifact_registry=registry,
            consent_store=open_consents(self._config),
            available_backends=available,
        )

    def catalog(self, repo: Path | None) -> Catalog:
        return Catalog.for_repository(repo, self._config.config_dir)

    async def find_workflow(self, repo: Path, name_or_file: str) -> WorkflowTemplate:
        """A workflow by name, or in a file of the repository itself. Raises `RepositoryNotAllowed`, `TemplateNotFound`.

        No other file is ever opened: what is wrong with a file is told to whoever named it.
        """
        if "/" in name_or_file or name_or_file.endswith(_YAML):
            path = await asyncio.to_thread(lambda: (repo / name_or_file).resolve())
            if not path.is_relative_to(repo) or path.suffix not in _YAML:
                raise RepositoryNotAllowed(
                    "A workflow is named, or it is a YAML file inside the repository.",
                    hint="Use a name of GET /api/workflows.",
                )
            name_or_file = str(path)
        entry = await asyncio.to_thread(self.catalog(repo).get_workflow, name_or_file)
        return entry.definition

    async def check_trust(
        self, repo: Path, name_or_file: str, *, is_simulated: bool, overrides: Mapping[str, str]
    ) -> None:
        """Raise `ConsentRequired` unless whoever runs the server has agreed to the repository's own definitions."""

        def check() -> None:
            catalog = self.catalog(repo)
            named = str(repo / name_or_file) if "/" in name_or_file or name_or_file.endswith(_YAML) else name_or_file
            personas = [entry.definition for entry in catalog.list_personas()]
            available = find_available(personas, is_simulated=is_simulated)
            used = list_used(catalog, catalog.get_workflow(named), available, overrides)
            check_trust(repo, used, open_consents(self._config))

        await asyncio.to_thread(check)

    async def check_persona_trust(self, repo: Path, names: Iterable[str]) -> None:
        """Raise `ConsentRequired` if one of these personas is the repository's own and nobody has agreed to it.

        A name that nobody has is told by the binding.
        """

        def check() -> None:
            named = set(names)
            used = [entry for entry in self.catalog(repo).list_personas() if entry.definition.name in named]
            check_trust(repo, used, open_consents(self._config))

        await asyncio.to_thread(check)

    async def choose_partner(self, repo: Path, wanted: str | None, *, is_simulated: bool) -> AgentPersona:
        """Who a conversation about this repository is with; raises as `get_persona` does."""

        def choose() -> AgentPersona:
            entries = self.catalog(repo).list_personas()
            return choose_persona(entries, repo, open_consents(self._config), wanted=wanted, is_simulated=is_simulated)

        return await asyncio.to_thread(choose)

    async def resolve_repository(self, given: str) -> Path:
        """The folder that a request names, links resolved. Raises `RepositoryNotAllowed` outside `workspace_root`."""
        path, root = await asyncio.to_thread(lambda: (Path(given).resolve(), self._config.workspace_root.resolve()))
        if not Path(given).is_absolute() or not path.is_relative_to(root):
            raise RepositoryNotAllowed("The repository does not lie under the server's workspace root.")
        return path

    async def _parts(self, repo: Path | None) -> _Parts:
        kept = self._kept.get(repo)
        if kept is not None and time.monotonic() - kept[0] < _KEEP_S:
            return kept[1]
        parts = await asyncio.to_thread(self._load, repo)
        if len(self._kept) > 100:
            self._kept.clear()
        self._kept[repo] = (time.monotonic(), parts)
        return parts

    def _load(self, repo: Path | None) -> _Parts:
        catalog = self.catalog(repo)
        return [entry.definition for entry in catalog.list_personas_if_whole()], catalog.artifact_registry()
