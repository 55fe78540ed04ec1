"""The commands about what can be used: workflows and personas."""

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.output import print_json, table
from holdfast.cli.running import JSON

workflows = typer.Typer(name="workflows", help="Look at workflows.", no_args_is_help=True, rich_markup_mode=None)
personas = typer.Typer(name="personas", help="Look at personas.", no_args_is_help=True, rich_markup_mode=None)
REPO = Annotated[Path, typer.Option("--repo", help="The repository whose own .holdfast folder counts too.")]


def _catalog(repo: Path):  # type: ignore[no-untyped-def]  # the type would import the catalog
    from holdfast.catalog import Catalog
    from holdfast.config import load_config

    return Catalog.for_repository(repo, load_config().config_dir)


@workflows.command("list")
def list_workflows(repo: REPO = Path(), as_json: JSON = False) -> None:
    """The workflows there are, and where each comes from.

    Example: holdfast workflows list
    """
    entries = _catalog(repo).list_workflows()
    if as_json:
        print_json([_workflow_facts(entry) for entry in entries])
        return
    rows = [[e.definition.name, str(e.definition.version), e.source.value, e.definition.description] for e in entries]
    typer.echo(table(rows, headings=["NAME", "VERSION", "FROM", "WHAT IT DOES"]))


@workflows.command("show")
def show_workflow(
    workflow: Annotated[str, typer.Argument(metavar="WORKFLOW")], repo: REPO = Path(), as_json: JSON = False
) -> None:
    """The phases of a workflow: roles, risks, approvals and artifacts.

    Example: holdfast workflows show feature-delivery
    """
    entry = _catalog(repo).get_workflow(workflow)
    if as_json:
        print_json({**_workflow_facts(entry), "definition": entry.definition.model_dump(by_alias=True)})
        return
    template = entry.definition
    typer.echo(f"{template.name} v{template.version} ({entry.source.value})\n{template.description}\n")
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
    typer.echo(table(rows, headings=["PHASE", "ROLE", "RISK", "THEN", "FILES", "AFTER", "ARTIFACT"]))


@workflows.command("validate")
def validate_workflow(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A workflow of your own.")],
    repo: REPO = Path(),
    as_json: JSON = False,
) -> None:
    """Check a workflow file: fields, graph, roles, schemas, and whether someone could fill each role.

    Example: holdfast workflows validate .holdfast/workflows/mine.yaml
    """
    from holdfast.workflow import check_schemas, load_workflow_file

    template = load_workflow_file(file)
    check_schemas(template, _catalog(repo).artifact_registry())
    if as_json:
        print_json({"name": template.name, "version": template.version, "hash": template.content_hash, "valid": True})
    else:
        typer.echo(f"✓ {template.name} v{template.version}: {len(template.phases)} phases, {len(template.roles)} roles")


@personas.command("list")
def list_personas(repo: REPO = Path(), as_json: JSON = False) -> None:
    """The personas there are, their models and where each comes from.

    Example: holdfast personas list
    """
    entries = _catalog(repo).list_personas()
    if as_json:
        print_json([{**e.definition.model_dump(by_alias=True), "source": e.source.value} for e in entries])
        return
    rows = [[e.definition.name, e.definition.backend.value, e.definition.model or "", e.source.value] for e in entries]
    typer.echo(table(rows, headings=["NAME", "BACKEND", "MODEL", "FROM"]))


@personas.command("show")
def show_persona(
    persona: Annotated[str, typer.Argument(metavar="PERSONA")], repo: REPO = Path(), as_json: JSON = False
) -> None:
    """One persona in full.

    Example: holdfast personas show simulated-developer
    """
    entry = _catalog(repo).get_persona(persona)
    facts = {**entry.definition.model_dump(by_alias=True), "source": entry.source.value, "file": str(entry.path)}
    if as_json:
        print_json(facts)
        return
    typer.echo(table([[name, str(value)[:200]] for name, value in facts.items() if value not in (None, "", [], {})]))


def _workflow_facts(entry) -> dict[str, object]:  # type: ignore[no-untyped-def]  # as above
    template = entry.definition
    return {
        "name": template.name,
        "version": template.version,
        "description": template.description,
        "source": entry.source.value,
        "hash": template.content_hash,
        "phases": [phase.key for phase in template.phases],
    }
