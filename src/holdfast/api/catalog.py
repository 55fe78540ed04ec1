"""What can be used: workflows and personas; and how the server is."""

import asyncio
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, PlainTextResponse, Response

from holdfast import __version__
from holdfast.api.auth import Viewer
from holdfast.api.metrics import HttpMetrics, Labels, gauge
from holdfast.api.params import ServerDep, Text
from holdfast.api.responses import OPEN, READ, files, problems
from holdfast.api.schemas import CatalogItem, CatalogList, Health
from holdfast.api.server import Server
from holdfast.api.shaping import to_catalog_item, to_usd
from holdfast.catalog import Catalog, CatalogEntry
from holdfast.enums import RunStatus
from holdfast.persistence.listings import count_by_state, read_total_micros
from holdfast.presentation.graph import Layout, lay_out
from holdfast.presentation.workflow import Outlook, foresee
from holdfast.workflow import WorkflowTemplate

router = APIRouter(tags=["catalog"])


class WorkflowItem(CatalogItem):
    outlook: Outlook = Field(description="What it asks of people and may do, in words.")
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
        outlook=foresee(entry.definition),
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
    return {(("of", "run"),): server.tails.count_clients(), (("of", "all_runs"),): server.feed.count_clients()}


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
                _by_provider(server.traffic.count_under_way()),
            ),
            *gauge(
                "holdfast_model_calls_waiting",
                "Calls to models that wait for the limits of this process, or for a pause that a provider asked for.",
                _by_provider(server.traffic.count_waiting()),
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
