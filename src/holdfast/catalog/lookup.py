"""Finds workflows, personas and schemas by name: the repository's own, then the user's, then the package's.

A name that stands in several places is taken from the first of them, with all its versions there.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Generic, TypeVar

from holdfast.artifact_schema import ArtifactSchemaRegistry
from holdfast.definitions.base import version_order
from holdfast.definitions.files import is_folder
from holdfast.definitions.yaml_file import load_definitions_from_dir
from holdfast.errors import HoldfastError, PersonaInvalid, PersonaNotFound, TemplateInvalid, TemplateNotFound
from holdfast.persona import AgentPersona, load_persona_file
from holdfast.workflow import WorkflowTemplate, load_workflow_file

PACKAGE_DIR = Path(__file__).parent

DefinitionT = TypeVar("DefinitionT", AgentPersona, WorkflowTemplate)


class Source(StrEnum):
    """Where an entry comes from."""

    FILE = "file"
    REPOSITORY = "repository"
    USER = "user"
    PACKAGE = "package"


@dataclass(frozen=True, slots=True)
class CatalogRoot:
    """A folder that may hold `personas/`, `workflows/` and `artifacts/`."""

    path: Path
    source: Source


@dataclass(frozen=True, slots=True)
class CatalogEntry(Generic[DefinitionT]):
    """One definition, and the file it was read from."""

    definition: DefinitionT
    source: Source
    file: Path


@dataclass(frozen=True, slots=True)
class Catalog:
    """What can be used by name, over several roots; the first root wins. Files are read anew at every call."""

    roots: tuple[CatalogRoot, ...]

    @classmethod
    def for_repository(cls, repo_path: str | Path | None = None, config_dir: str | Path | None = None) -> "Catalog":
        """Make a catalog of the repository's `.holdfast`, the user's folder and the package, in that order."""
        roots = [CatalogRoot(PACKAGE_DIR, Source.PACKAGE)]
        if config_dir is not None:
            roots.insert(0, CatalogRoot(Path(config_dir), Source.USER))
        if repo_path is not None:
            roots.insert(0, CatalogRoot(Path(repo_path) / ".holdfast", Source.REPOSITORY))
        return cls(tuple(roots))

    def list_workflows(self) -> list[CatalogEntry[WorkflowTemplate]]:
        """List every workflow by name, with its source. Raises `TemplateInvalid` for a file that cannot be used."""
        return _collect(self.roots, "workflows", load_workflow_file, TemplateInvalid)

    def list_personas(self) -> list[CatalogEntry[AgentPersona]]:
        """List every persona by name, with its source. Raises `PersonaInvalid` for a file that cannot be used."""
        return _collect(self.roots, "personas", load_persona_file, PersonaInvalid)

    def list_personas_if_whole(self) -> list[CatalogEntry[AgentPersona]]:
        """List the personas, none where a file cannot be used: for runs that are bound and have theirs stored."""
        try:
            return self.list_personas()
        except PersonaInvalid:
            return []

    def get_workflow(self, name_or_file: str) -> CatalogEntry[WorkflowTemplate]:
        """Return the workflow of that name (its highest version), or in that file. Raises `TemplateNotFound`."""
        if _is_file(name_or_file):
            path = Path(name_or_file).expanduser()
            return CatalogEntry(load_workflow_file(path), Source.FILE, path)
        return _pick(self.list_workflows(), name_or_file, TemplateNotFound, "workflow")

    def get_persona(self, name_or_file: str) -> CatalogEntry[AgentPersona]:
        """Return the persona of that name (its highest version), or in that file. Raises `PersonaNotFound`."""
        if _is_file(name_or_file):
            path = Path(name_or_file).expanduser()
            return CatalogEntry(load_persona_file(path), Source.FILE, path)
        return _pick(self.list_personas(), name_or_file, PersonaNotFound, "persona")

    def artifact_registry(self) -> ArtifactSchemaRegistry:
        """Return a registry of the schemas of every root, in the same order."""
        return ArtifactSchemaRegistry(roots=[root.path / "artifacts" for root in self.roots])


def _is_file(name_or_file: str) -> bool:
    return "/" in name_or_file or name_or_file.endswith((".yaml", ".yml"))


def _collect(
    roots: Sequence[CatalogRoot],
    folder_name: str,
    load_file: Callable[[Path], DefinitionT],
    fault: type[HoldfastError],
) -> list[CatalogEntry[DefinitionT]]:
    entries: list[CatalogEntry[DefinitionT]] = []
    for root in roots:
        folder = root.path / folder_name
        if not is_folder(folder):
            continue
        taken = {entry.definition.name for entry in entries}
        bounds = _find_bounds(root.path.parent) if root.source is Source.REPOSITORY else None
        found = load_definitions_from_dir(folder, load_file, fault, bounds=bounds)
        entries += [CatalogEntry(one, root.source, file) for file, one in found.items() if one.name not in taken]
    return sorted(entries, key=lambda entry: (entry.definition.name, version_order(entry.definition.version)))


def _find_bounds(folder: Path) -> Path:
    """Find how far links of a repository's definitions may lead: anywhere in the checkout that the folder is in."""
    real = folder.resolve()
    return next((place for place in (real, *real.parents) if os.path.lexists(place / ".git")), real)


def _pick(
    entries: Sequence[CatalogEntry[DefinitionT]], name: str, missing: type[HoldfastError], kind: str
) -> CatalogEntry[DefinitionT]:
    named = [entry for entry in entries if entry.definition.name == name]
    if not named:
        names = ", ".join(dict.fromkeys(entry.definition.name for entry in entries))
        raise missing(f"There is no {kind} {name}.", hint=f"There are {names}; a path to a file works too.", name=name)
    return named[-1]
