"""What can be used: workflows and personas; and how the server is."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.responses import JSONResponse, PlainTextResponse, Response

from holdfast import __version__
from holdfast.api.http.auth import Viewer
from holdfast.api.http.openapi import OPEN, READ, WRITE, files, problems
from holdfast.api.schemas import CatalogItem, CatalogList, Health, ServerDep, Text
from holdfast.api.serialize import to_catalog_item, to_usd
from holdfast.api.server.metrics import HttpMetrics, Labels, gauge
from holdfast.api.server.server import Server
from holdfast.binding import find_unfillable
from holdfast.catalog import Catalog, CatalogEntry
from holdfast.definitions.yaml_file import Problem, check_definition
from holdfast.enums import RunStatus
from holdfast.persistence.listings import count_by_state, read_total_micros
from holdfast.presentation.graph import Layout, lay_out
from holdfast.presentation.workflow import WorkflowSummary, summarize_workflow
from holdfast.workflow import WorkflowTemplate, find_schema_faults

router = APIRouter(tags=["catalog"])


class WorkflowItem(CatalogItem):
    outlook: WorkflowSummary = Field(description="What it asks of people and may do, in words.")
    across: Layout = Field(description="Its graph, drawn from left to right.")
    down: Layout = Field(description="Its graph, drawn downwards.")


class WorkflowList(BaseModel):
    items: list[WorkflowItem]


RepoQuery = Annotated[Text | None, Query(max_length=4000, description="Also what this repository brings along.")]


async def _catalog(server: Server, repo_path: str | None) -> Catalog:
    repo = None if repo_path is None else await server.engines.resolve_repository(repo_path)
    return server.engines.catalog(repo)


@router.get("/api/workflows", responses=READ, summary="Workflows that can be started by name")
async def list_workflows(server: ServerDep, _identity: Viewer, repo_path: RepoQuery = None) -> WorkflowList:
    catalog = await _catalog(server, repo_path)
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


@router.get("/api/personas", responses=READ, summary="Personas that can fill a role")
async def list_personas(server: ServerDep, _identity: Viewer, repo_path: RepoQuery = None) -> CatalogList:
    catalog = await _catalog(server, repo_path)
    entries = await asyncio.to_thread(catalog.list_personas)
    return CatalogList(items=[to_catalog_item(entry) for entry in entries])


@router.get("/api/health", responses={**OPEN, **problems(503)}, summary="Whether the server can work")
async def show_health(server: ServerDep) -> Health:
    try:
        await count_by_state(server.db)
    except Exception:  # whatever the driver calls it: the database does not answer
        body = Health(status="unavailable", version=__version__).model_dump()
        return JSONResponse(body, 503)  # type: ignore[return-value]
    return Health(status="ok", version=__version__)


_METRICS_EXAMPLE = {"text/plain": '# TYPE holdfast_runs gauge\nholdfast_runs{state="running"} 2.0\n'}


def _count_streams(server: Server) -> dict[Labels, float]:
    return {(("of", "run"),): server.run_streams.count_clients(), (("of", "all_runs"),): server.feed.count_clients()}


def _by_provider(counts: Mapping[str, int]) -> dict[Labels, float]:
    return {(("provider", name),): float(count) for name, count in counts.items()}


def metrics_route(http: HttpMetrics) -> APIRouter:
    own = APIRouter(tags=["catalog"])

    @own.get(
        "/metrics",
        responses={**READ, **files(_METRICS_EXAMPLE, description="Prometheus text format.")},
        response_class=Response,
        summary="Figures for Prometheus",
    )
    async def show_metrics(server: ServerDep, _identity: Viewer) -> Response:
        counts = await count_by_state(server.db)
        real_micros, simulated_micros = await read_total_micros(server.db)
        by_state: dict[Labels, float] = {
            (("state", state.value),): float(counts.get(state.value, 0)) for state in RunStatus
        }
        lines = [
            *gauge("holdfast_runs", "Runs by state.", by_state),
            *gauge("holdfast_runs_driven", "Runs that this server drives.", {(): server.dispatcher.count_driven()}),
            *gauge("holdfast_runs_waiting", "Runs that wait here.", {(): server.dispatcher.count_waiting()}),
            *gauge("holdfast_sse_clients", "Open event streams.", _count_streams(server)),
            *gauge(
                "holdfast_model_calls",
                "Calls to models under way.",
                _by_provider(server.rate_limits.count_under_way()),
            ),
            *gauge(
                "holdfast_model_calls_waiting",
                "Calls to models that wait for the limits of this process, or for a pause that a provider asked for.",
                _by_provider(server.rate_limits.count_waiting()),
            ),
            *gauge(
                "holdfast_cost_usd_total",
                "Money spent and reserved.",
                {(): to_usd(real_micros)},
                "counter",
            ),
            *gauge(
                "holdfast_simulated_cost_usd_total",
                "What rehearsals made up; no money.",
                {(): to_usd(simulated_micros)},
                "counter",
            ),
            *server.metrics.lines(),
            *http.lines(),
        ]
        return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")

    return own


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
    """Check fields, graph, roles, and that there is a schema for each artifact. What is wrong is a finding."""
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
