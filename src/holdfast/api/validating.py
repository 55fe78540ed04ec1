"""Checking a workflow before it is anywhere: `holdfast workflows validate` over HTTP.

Rule: what is checked comes in the request. Nothing is written, and no file that it names is opened.
"""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, model_validator

from holdfast.api.auth import Viewer
from holdfast.api.params import ServerDep, Text
from holdfast.api.responses import WRITE
from holdfast.binding import find_unfillable
from holdfast.catalog import Catalog
from holdfast.definitions.yaml_file import Problem, check_definition
from holdfast.workflow import WorkflowTemplate, find_schema_faults

router = APIRouter(tags=["catalog"])
_MAX_CHARACTERS = 200_000  # a whole second of parsing is nothing that a viewer should be able to ask for


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
        return self


class Finding(BaseModel):
    line: int | None = Field(description="In the text; `null` for an object.", examples=[4])
    field: str = Field(examples=["phases[0].role"])
    message: str = Field(examples=["there is no role author; the roles are reviewer"])


class WorkflowFindings(BaseModel):
    is_valid: bool
    name: str | None = Field(examples=["mine"])
    version: str | None
    hash: str | None = Field(description="What it would be known by.")
    findings: list[Finding] = Field(description="Everything that is wrong, in the order of the text.")
    unfillable: list[str] = Field(description="Roles that no persona could fill; the workflow is valid all the same.")


@router.post("/api/workflows/validate", responses=WRITE, summary="Check a workflow without keeping it")
async def validate(body: ValidateWorkflow, server: ServerDep, _identity: Viewer) -> WorkflowFindings:
    """Fields, graph, roles, and whether there is a schema for each artifact. A workflow that is wrong is a finding."""
    repo = None if body.repo_path is None else await server.engines.resolve_repository(body.repo_path)

    def check() -> WorkflowFindings:
        return find_faults(body, server.engines.catalog(repo))

    return await asyncio.to_thread(check)


def find_faults(body: ValidateWorkflow, catalog: Catalog) -> WorkflowFindings:
    source = body.text if body.text is not None else body.definition
    assert source is not None
    registry = catalog.artifact_registry()
    template, problems = check_definition(source, WorkflowTemplate, lambda found: find_schema_faults(found, registry))
    has_lines = body.text is not None
    personas = [entry.definition for entry in catalog.list_personas_if_whole()]
    return WorkflowFindings(
        is_valid=not problems,
        name=template.name if template else None,
        version=str(template.version) if template else None,
        hash=template.content_hash if template else None,
        findings=[_to_finding(problem, has_lines=has_lines) for problem in problems],
        unfillable=find_unfillable(template, personas) if template and personas else [],
    )


def _to_finding(problem: Problem, *, has_lines: bool) -> Finding:
    return Finding(line=problem.line if has_lines else None, field=problem.field, message=problem.message)
