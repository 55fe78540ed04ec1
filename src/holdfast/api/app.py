"""The HTTP server as an ASGI app. Errors become statuses here and nowhere else."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware

from holdfast import __version__
from holdfast.api.http.auth import Access
from holdfast.api.http.guard import Guard
from holdfast.api.http.openapi import add_examples, add_problem_schema, restore_component_names
from holdfast.api.http.pages import add_pages
from holdfast.api.http.problems import on_holdfast_error, on_http_exception, on_invalid_request
from holdfast.api.options import ServerOptions
from holdfast.api.routes import (
    approvals,
    budget,
    checks,
    conversations,
    events,
    flows,
    health,
    inbox,
    limits,
    metrics,
    overview,
    personas,
    repositories,
    runs,
    schedules,
    sessions,
    statistics,
    tokens,
    workers,
    workflows,
)
from holdfast.api.routes.run import (
    artifacts,
    changes,
    comparison,
    control,
    cost,
    diff,
    document,
    merge,
    messages,
    outcome,
    plan,
    preview,
    report,
    request,
    timeline,
)
from holdfast.api.server.metrics import HttpMetrics
from holdfast.api.server.server import ServerHolder
from holdfast.config import Config, load_config
from holdfast.errors import HoldfastError

ROUTE_MODULES = (
    *(runs, control, preview, request, events, messages, merge, artifacts, diff, report, conversations, approvals),
    *(flows, workflows, personas, health, budget, sessions, tokens),
    *(workers, limits, schedules),
    *(overview, inbox, plan, outcome, timeline, cost, changes, comparison, document),  # for the pages
    *(statistics, repositories, checks),  # for the pages too
)
_DESCRIPTION = """Start, watch and steer runs of agent work.

Programs send `Authorization: Bearer <token>`; browsers log in. Every refusal is `application/problem+json` with a
stable `code`. Events are followed by `GET /api/runs/{run_id}/events`, without gaps and without repeats."""


def create_app(config: Config | None = None, *, options: ServerOptions | None = None) -> FastAPI:
    """Build the app for these settings; nothing is opened before it is started, or before its first request."""
    config = config or load_config()
    options = options or ServerOptions()
    options = replace(options, allowed_hosts=options.allowed_hosts | frozenset(config.allowed_hosts))
    holder = ServerHolder(config, options)
    http_metrics = HttpMetrics()

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await holder.get()
        try:
            yield
        finally:
            await holder.close()

    app = _Api(
        title="holdfast",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # the interactive pages load scripts from other hosts, which the CSP forbids
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.holder = holder
    app.state.access = Access(options)
    # Event streams are left as they are: a piece would wait for the next one. A small answer is not worth it, and one
    # that holds a token is small.
    app.add_middleware(GZipMiddleware, minimum_size=1400, compresslevel=5)
    app.add_middleware(Guard, options=options, metrics=http_metrics)
    app.add_exception_handler(HoldfastError, on_holdfast_error)
    app.add_exception_handler(RequestValidationError, on_invalid_request)
    app.add_exception_handler(HTTPException, on_http_exception)
    for module in ROUTE_MODULES:
        app.include_router(module.router)
    app.include_router(metrics.metrics_route(http_metrics))
    add_pages(app)
    return app


class _Api(FastAPI):
    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            document = add_examples(add_problem_schema(super().openapi()))
            self.openapi_schema = restore_component_names(document)
        return self.openapi_schema
