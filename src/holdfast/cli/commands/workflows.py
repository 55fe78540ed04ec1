"""The commands workflows list, show and validate."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.terminal.arguments import JSON, REPO
from holdfast.cli.terminal.catalog import get_workflow, open_catalog
from holdfast.cli.terminal.completion import complete_workflows
from holdfast.cli.terminal.output import Cell, paint, print_json, print_text, say, table

if TYPE_CHECKING:
    from holdfast.catalog import CatalogEntry
    from holdfast.workflow import WorkflowTemplate


def list_workflows(repo: REPO = Path(), as_json: JSON = False) -> None:
    """List workflows and where each comes from.

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
    """Show the phases of a workflow: roles, risks, approvals and artifacts.

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
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A workflow file of your own.")],
    repo: REPO = Path(),
    as_json: JSON = False,
) -> None:
    """Check a workflow file: fields, graph, roles, schemas, and whether someone could fill each role.

    Example: holdfast workflows validate .holdfast/workflows/mine.yaml
    """
    from holdfast.binding import find_unfillable
    from holdfast.definitions.yaml_file import check_definition_file
    from holdfast.errors import TemplateNotFound
    from holdfast.workflow import WorkflowTemplate, find_template_faults

    if not file.is_file():
        raise TemplateNotFound(f"There is no file {file}.", hint="Name a workflow file of your own.")
    catalog = open_catalog(repo)
    registry = catalog.artifact_registry()
    template, problems = check_definition_file(
        file, WorkflowTemplate, lambda found: find_template_faults(found, registry)
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
