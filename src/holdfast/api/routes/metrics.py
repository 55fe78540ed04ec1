"""`/metrics`: figures for Prometheus."""

from collections.abc import Mapping

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from holdfast.api.http.auth import Viewer
from holdfast.api.http.openapi import READ, files
from holdfast.api.serialize import to_usd
from holdfast.api.server.fleet_metrics import list_fleet_figures
from holdfast.api.server.metrics import HttpMetrics, Labels, gauge
from holdfast.api.server.server import Server, ServerDep
from holdfast.enums import RunStatus
from holdfast.persistence.listings import count_by_state, read_total_micros
from holdfast.runtime import flow_rows

_METRICS_EXAMPLE = {"text/plain": '# TYPE holdfast_runs gauge\nholdfast_runs{state="running"} 2.0\n'}


def _count_streams(server: Server) -> dict[Labels, float]:
    return {(("of", "run"),): server.run_streams.count_clients(), (("of", "all_runs"),): server.feed.count_clients()}


def _by_state(counts: Mapping[str, int]) -> dict[Labels, float]:
    return {(("state", state.value),): float(counts.get(state.value, 0)) for state in RunStatus}


def _count_driven_flows(server: Server) -> int:
    return 0 if server.flows is None else len(server.flows.driven)


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
        flows = await server.journal.query(flow_rows.count_by_status)
        driven, waiting = server.count_runs()
        fleet = await list_fleet_figures(server.db)
        lines = [
            *fleet,
            *gauge("holdfast_runs", "Runs by state.", _by_state(counts)),
            *gauge("holdfast_flows", "Flow runs by state.", _by_state(flows)),
            *gauge("holdfast_flows_driven", "Flow runs that this server drives.", {(): _count_driven_flows(server)}),
            *gauge("holdfast_runs_driven", "Runs that this server drives.", {(): driven}),
            *gauge("holdfast_runs_waiting", "Runs that wait here.", {(): waiting}),
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
            *server.drive_metrics.lines(),
            *http.lines(),
        ]
        return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")

    return own
