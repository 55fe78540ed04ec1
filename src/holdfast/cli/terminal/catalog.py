"""The catalog as commands read it: a name that is not there comes with what was probably meant."""

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.lazy import did_you_mean

if TYPE_CHECKING:
    from holdfast.catalog import Catalog, CatalogEntry
    from holdfast.persona import AgentPersona
    from holdfast.workflow import WorkflowTemplate


def open_catalog(repo: Path | None) -> "Catalog":
    """Return the catalog of a repository, the user and the package."""
    from holdfast.catalog import Catalog
    from holdfast.config import load_config

    return Catalog.for_repository(repo, load_config().config_dir)


def get_workflow(name: str, repo: Path | None) -> "CatalogEntry[WorkflowTemplate]":
    """Return the workflow of that name or file. Raises `TemplateNotFound`, which says what was probably meant."""
    from holdfast.errors import TemplateNotFound

    catalog = open_catalog(repo)
    try:
        return catalog.get_workflow(name)
    except TemplateNotFound as error:
        error.hint = did_you_mean(name, [e.definition.name for e in catalog.list_workflows()]).strip() or error.hint
        raise


def get_persona(name: str, repo: Path) -> "CatalogEntry[AgentPersona]":
    """Return the persona of that name or file. Raises `PersonaNotFound`, which says what was probably meant."""
    from holdfast.errors import PersonaNotFound

    catalog = open_catalog(repo)
    try:
        return catalog.get_persona(name)
    except PersonaNotFound as error:
        error.hint = did_you_mean(name, [e.definition.name for e in catalog.list_personas()]).strip() or error.hint
        raise
