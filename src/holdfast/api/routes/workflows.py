"""Workflows that can be started, and whether a definition would be one."""

import asyncio
import hashlib
import json
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, model_validator

from holdfast.api.http.auth import Viewer
from holdfast.api.http.openapi import READ, WRITE
from holdfast.api.schemas import CatalogItem, RepoQuery, Text
from holdfast.api.serialize import to_catalog_item
from holdfast.api.server.server import ServerDep
from holdfast.binding import find_unfillable
from holdfast.catalog import Catalog, CatalogEntry
from holdfast.definitions.yaml_file import DefinitionProblem, check_definition
from holdfast.presentation.graph import Layout, lay_out
from holdfast.presentation.workflow import WorkflowSummary, summarize_workflow
from holdfast.workflow import WorkflowTemplate, find_template_faults

router = APIRouter(tags=["catalog"])


class WorkflowItem(CatalogItem):
    outlook: WorkflowSummary = Field(description="What it asks of people and may do, in words.")
    across: Layout = Field(description="Its graph, drawn from left to right.")
    down: Layout = Field(description="Its graph, drawn downwards.")


class WorkflowList(BaseModel):
    items: list[WorkflowItem]


@router.get("/api/workflows", responses=READ, summary="Workflows that can be started by name")
async def list_workflows(server: ServerDep, _identity: Viewer, repo_path: RepoQuery = None) -> WorkflowList:
    catalog = await server.engines.find_catalog(repo_path)
    entries = await asyncio.to_thread(catalog.list_workflows)
    return WorkflowList(items=[_to_workflow(entry) for entry in entries])


def _to_workflow(entry: CatalogEntry[WorkflowTemplate]) -> WorkflowItem:
    needs = [(phase.key, phase.needs or ()) for phase in entry.definition.phases]
    return WorkflowItem(
        **to_catalog_item(entry).model_dump(),
        outlook=summarize_workflow(entry.definition),
        across=lay_out(needs),
        down=lay_out(needs, is_down=True),
    )


_MAX_CHARACTERS = 100_000  # ten times what people write; a second of work is nothing that a viewer should ask for


_MAX_FINDINGS = 100


class ValidateWorkflow(BaseModel):
    """A workflow as the text of a file, which may be YAML or JSON, or as the object it would become."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"text": "name: mine\nversion: 1\ndescription: Two notes.\nroles: []\n"}]},
    )
    text: Annotated[Text, Field(max_length=_MAX_CHARACTERS)] | None = None
    definition: dict[str, Any] | None = None
    repo_path: Annotated[
        Text | None, Field(max_length=4000, description="Also the artifact schemas that this repository brings along.")
    ] = None

    @model_validator(mode="after")
    def _check_one(self) -> "ValidateWorkflow":
        if (self.text is None) == (self.definition is None):
            raise ValueError("give either text or definition")
        if self.definition is not None and _measure(self.definition) > _MAX_CHARACTERS:
            raise ValueError(f"a definition has at most {_MAX_CHARACTERS} characters as JSON")
        return self


class WorkflowFinding(BaseModel):
    line: int | None = Field(description="In the text; `null` for an object.", examples=[4])
    field: str = Field(examples=["phases[0].role"])
    message: str = Field(examples=["there is no role author; the roles are reviewer"])


class WorkflowFindings(BaseModel):
    is_valid: bool
    name: str | None = Field(examples=["mine"])
    version: str | None
    hash: str | None = Field(description="What it would be known by.")
    findings: list[WorkflowFinding] = Field(description="What is wrong, in the order of the text; at most a hundred.")
    unfillable: list[str] = Field(description="Roles that no persona could fill; the workflow is valid all the same.")


@router.post("/api/workflows/validate", responses=WRITE, summary="Check a workflow without keeping it")
async def validate(body: ValidateWorkflow, server: ServerDep, _identity: Viewer) -> WorkflowFindings:
    """Check fields, graph, roles, and that there is a schema for each artifact. What is wrong is a finding."""
    repo = None if body.repo_path is None else (await server.engines.resolve_repository(body.repo_path)).folder

    def check() -> WorkflowFindings:
        return find_faults(body, server.engines.catalog(repo))

    found: WorkflowFindings = await server.validations.get(_to_key(body), check)
    return found


def _measure(definition: dict[str, Any]) -> int:
    try:
        return len(json.dumps(definition))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _to_key(body: ValidateWorkflow) -> str:
    return hashlib.sha256(repr(body).encode(errors="surrogatepass")).hexdigest()


def find_faults(body: ValidateWorkflow, catalog: Catalog) -> WorkflowFindings:
    source = body.text if body.text is not None else body.definition
    assert source is not None
    registry = catalog.artifact_registry()
    template, problems = check_definition(source, WorkflowTemplate, lambda found: find_template_faults(found, registry))
    has_lines = body.text is not None
    personas = [entry.definition for entry in catalog.list_personas_if_whole()]
    return WorkflowFindings(
        is_valid=not problems,
        name=template.name if template else None,
        version=str(template.version) if template else None,
        hash=template.content_hash if template else None,
        findings=[_to_finding(problem, has_lines=has_lines) for problem in problems[:_MAX_FINDINGS]],
        unfillable=find_unfillable(template, personas) if template and personas else [],
    )


def _to_finding(problem: DefinitionProblem, *, has_lines: bool) -> WorkflowFinding:
    return WorkflowFinding(line=problem.line if has_lines else None, field=problem.field, message=problem.message)
