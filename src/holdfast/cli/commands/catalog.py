"""The commands about what can be used: workflows and personas."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.lazy import did_you_mean
from holdfast.cli.terminal.arguments import JSON, REPO
from holdfast.cli.terminal.completion import complete_personas, complete_workflows
from holdfast.cli.terminal.output import Cell, paint, print_json, print_text, say, table

if TYPE_CHECKING:
    from holdfast.binding import Missing
    from holdfast.catalog import Catalog, CatalogEntry
    from holdfast.persona import AgentPersona
    from holdfast.workflow import WorkflowTemplate


def open_catalog(repo: Path) -> "Catalog":
    from holdfast.catalog import Catalog
    from holdfast.config import load_config

    return Catalog.for_repository(repo, load_config().config_dir)


def get_workflow(name: str, repo: Path) -> "CatalogEntry[WorkflowTemplate]":
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


def list_workflows(repo: REPO = Path(), as_json: JSON = False) -> None:
    """The workflows there are, and where each comes from.

    Example: holdfast workflows list
    """
    entries = open_catalog(repo).list_workflows()
    if as_json:
        print_json([_workflow_facts(entry) for entry in entries])
        return
    rows: list[list[str | Cell]] = [
        [
            Cell(entry.definition.name, "bold"),
            str(entry.definition.version),
            entry.source.value,
            entry.definition.description,
        ]
        for entry in entries
    ]
    print_text(table(rows, headings=["NAME", "VERSION", "FROM", "WHAT IT DOES"]))


def show_workflow(
    workflow: Annotated[str, typer.Argument(metavar="WORKFLOW", autocompletion=complete_workflows)],
    repo: REPO = Path(),
    as_json: JSON = False,
) -> None:
    """The phases of a workflow: roles, risks, approvals and artifacts.

    Example: holdfast workflows show feature-delivery
    """
    entry = get_workflow(workflow, repo)
    if as_json:
        print_json({**_workflow_facts(entry), "definition": entry.definition.model_dump(by_alias=True)})
        return
    template = entry.definition
    print_text(f"{paint(template.name, 'bold')} v{template.version} ({entry.source.value})\n{template.description}\n")
    rows = [
        [
            phase.key,
            phase.role,
            phase.risk.value,
            "asks a person" if phase.requires_approval else "goes on by itself",
            "reads only" if phase.read_only else "writes",
            ", ".join(phase.needs or ()) or "–",
            phase.expected_artifact.path,
        ]
        for phase in template.phases
    ]
    print_text(table(rows, headings=["PHASE", "ROLE", "RISK", "THEN", "FILES", "AFTER", "ARTIFACT"]))


def validate_workflow(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A workflow of your own.")],
    repo: REPO = Path(),
    as_json: JSON = False,
) -> None:
    """Check a workflow file: fields, graph, roles, schemas, and whether someone could fill each role.

    Example: holdfast workflows validate .holdfast/workflows/mine.yaml
    """
    from holdfast.binding import find_unfillable
    from holdfast.definitions.yaml_file import check_definition_file
    from holdfast.errors import TemplateNotFound
    from holdfast.workflow import WorkflowTemplate, find_schema_faults

    if not file.is_file():
        raise TemplateNotFound(f"There is no file {file}.", hint="Name a workflow file of your own.")
    catalog = open_catalog(repo)
    registry = catalog.artifact_registry()
    template, problems = check_definition_file(
        file, WorkflowTemplate, lambda found: find_schema_faults(found, registry)
    )
    personas = [entry.definition for entry in catalog.list_personas_if_whole()]
    unfillable = find_unfillable(template, personas) if template and personas else []
    if as_json:
        print_json(
            {
                "valid": not problems,
                "file": str(file),
                "name": template.name if template else None,
                "version": template.version if template else None,
                "hash": template.content_hash if template else None,
                "findings": [{"line": p.line, "field": p.field, "message": p.message} for p in problems],
                "unfillable": unfillable,
            }
        )
    elif problems:
        for problem in problems:
            print_text(f"{file}:{problem.line}: {f'{problem.field}: ' if problem.field else ''}{problem.message}")
        say(f"✕ {len(problems)} finding{'s' if len(problems) > 1 else ''}. Every field: holdfast explain workflows")
    elif template is not None:
        counts = f"{_count(template.phases, 'phase')}, {_count(template.roles, 'role')}"
        print_text(f"✓ {template.name} v{template.version}: {counts}")
        for sentence in unfillable:
            print_text(f"! {sentence}")
    if problems:
        raise typer.Exit(1)


def _count(things: Sequence[object], noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"


def list_personas(repo: REPO = Path(), as_json: JSON = False) -> None:
    """The personas there are: who is ready and what the others need, their models, where each comes from.

    Example: holdfast personas list
    """
    listed = read_personas(repo)
    if as_json:
        print_json([_persona_facts(entry, missing) for entry, missing in listed])
        return
    rows: list[list[str | Cell]] = [
        [
            Cell(entry.definition.name, "bold"),
            describe_readiness(entry.definition, missing),
            entry.definition.backend.value,
            entry.definition.model or "",
            entry.source.value,
        ]
        for entry, missing in listed
    ]
    print_text(table(rows, headings=["NAME", "STATE", "BACKEND", "MODEL", "FROM"], elastic=1))


def read_personas(repo: Path) -> "list[tuple[CatalogEntry[AgentPersona], list[Missing]]]":
    """Return each persona with what it lacks here: who is ready first, who is for rehearsals only last."""
    from holdfast.config import load_config
    from holdfast.consent import open_consents
    from holdfast.enums import Backend
    from holdfast.readiness import list_missing, open_readiness

    config = load_config()
    entries, consents = open_catalog(repo).list_personas(), open_consents(config)
    readiness = open_readiness(entries, config, repo=repo, consents=consents)
    readiness.ask_servers(entry.definition for entry in entries)
    listed = [(entry, list_missing(entry.definition, readiness, consents)) for entry in entries]
    return sorted(listed, key=lambda pair: (pair[0].definition.backend is Backend.SIMULATED, bool(pair[1])))


def describe_readiness(persona: "AgentPersona", missing: "Sequence[Missing]") -> Cell:
    if missing:
        return Cell(f"needs {' and '.join(one.thing for one in missing)}", "paused")
    is_simulated = persona.backend.value == "simulated"
    return Cell("with --simulate", "dim") if is_simulated else Cell("ready", "completed")


def show_persona(
    persona: Annotated[str, typer.Argument(metavar="PERSONA", autocompletion=complete_personas)],
    repo: REPO = Path(),
    as_json: JSON = False,
) -> None:
    """One persona in full.

    Example: holdfast personas show simulated-developer
    """
    entry = get_persona(persona, repo)
    facts = {**entry.definition.model_dump(by_alias=True), "source": entry.source.value, "file": str(entry.file)}
    if as_json:
        print_json(facts)
        return
    print_text(table([[name, str(value)[:200]] for name, value in facts.items() if value not in (None, "", [], {})]))


def _persona_facts(entry: "CatalogEntry[AgentPersona]", missing: "Sequence[Missing]") -> dict[str, object]:
    return {
        **entry.definition.model_dump(by_alias=True),
        "source": entry.source.value,
        "is_ready": not missing,
        "state": describe_readiness(entry.definition, missing).text,
        "missing": [one._asdict() for one in missing],
    }


def _workflow_facts(entry: "CatalogEntry[WorkflowTemplate]") -> dict[str, object]:
    template = entry.definition
    return {
        "name": template.name,
        "version": template.version,
        "description": template.description,
        "source": entry.source.value,
        "hash": template.content_hash,
        "phases": [phase.key for phase in template.phases],
    }
