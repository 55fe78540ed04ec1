"""From errors to answers: one table of codes and statuses, one shape for every refusal (RFC 9457)."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from holdfast.errors import HoldfastError, WorkspaceConflict

MEDIA_TYPE = "application/problem+json"

STATUSES: Mapping[str, int] = {
    "last_event_id_invalid": 400,
    "not_authenticated": 401,
    "role_insufficient": 403,
    "origin_not_allowed": 403,
    "repository_not_allowed": 403,
    "unsandboxed_not_allowed": 403,
    "run_not_found": 404,
    "run_id_invalid": 404,
    "approval_not_found": 404,
    "artifact_not_found": 404,
    "report_missing": 404,
    "token_not_found": 404,
    "schedule_not_found": 404,
    "body_too_slow": 408,
    "approval_answered": 409,
    "approval_stale": 409,
    "cleanup_busy": 409,
    "consent_required": 409,
    "lease_lost": 409,
    "pull_request_form_missing": 409,
    "repository_missing": 409,
    "row_refused": 409,
    "run_already_terminal": 409,
    "target_branch_missing": 409,
    "run_busy": 409,
    "run_waits": 409,
    "run_metadata_missing": 409,
    "run_not_in_state": 409,
    "second_person_needed": 409,
    "sequence_conflict": 409,
    "template_load_failed": 409,
    "unmerged_result": 409,
    "workspace_conflict": 409,
    "workspace_error": 409,
    "workspace_too_large": 409,
    "body_too_large": 413,
    "range_invalid": 416,
    "host_not_allowed": 421,
    "artifact_invalid": 422,
    "base_branch_missing": 422,
    "config_invalid": 422,
    "cursor_invalid": 422,
    "idempotency_key_reused": 422,
    "image_invalid": 422,
    "image_unsupported": 422,
    "limit_invalid": 422,
    "payload_invalid": 422,
    "persona_ineligible": 422,
    "persona_invalid": 422,
    "persona_not_found": 422,
    "queue_unknown": 422,
    "request_invalid": 422,
    "schedule_invalid": 422,
    "schema_invalid": 422,
    "schema_not_found": 422,
    "template_invalid": 422,
    "template_not_found": 422,
    "time_passed": 422,
    "worker_not_found": 422,
    "too_many_attempts": 429,
    "backend_unavailable": 503,
    "server_busy": 503,
    "store_busy": 503,
    "store_full": 503,
    "store_unavailable": 503,
    "store_unreadable": 503,
}
# Which field of a request to start a run a refusal is about.
_FIELDS: Mapping[str, str] = {
    "template_not_found": "workflow",
    "template_invalid": "workflow",
    "schema_not_found": "workflow",
    "schema_invalid": "workflow",
    "repository_not_allowed": "repo_path",
    "repository_missing": "repo_path",
    "config_invalid": "repo_path",
    "workspace_error": "repo_path",
    "workspace_too_large": "repo_path",
    "base_branch_missing": "base_branch",
    "persona_ineligible": "persona_overrides",
    "persona_not_found": "persona_overrides",
    "consent_required": "persona_overrides",
    "queue_unknown": "queue",
    "time_passed": "at",
}
_METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
_HTTP_CODES = {400: "request_invalid", 404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}


def status_of(error: HoldfastError) -> int:
    return STATUSES.get(error.code, 500)


def problem(
    status: int, code: str, detail: str, *, request_id: str, headers: Mapping[str, str] | None = None, **more: Any
) -> Response:
    content = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
        "request_id": request_id,
        **more,
    }
    text = json.dumps(content, ensure_ascii=False).encode(errors="replace")
    return Response(text, status, dict(headers or {}), MEDIA_TYPE)


def from_error(error: HoldfastError, request_id: str) -> Response:
    headers = {"WWW-Authenticate": 'Bearer realm="holdfast"'} if error.code == "not_authenticated" else {}
    if "retry_after_s" in error.facts:
        headers["Retry-After"] = str(error.facts["retry_after_s"])
    more: dict[str, Any] = {"paths": list(error.paths)} if isinstance(error, WorkspaceConflict) else {}
    if error.facts.get("missing"):
        more |= {name: error.facts[name] for name in ("role_id", "missing") if name in error.facts}
    if "field" in error.facts:
        more["errors"] = [
            {"where": ["body", error.facts["field"]], "message": f"{error.message} {error.hint}".rstrip()}
        ]
    return problem(
        status_of(error), error.code, error.message, request_id=request_id, headers=headers, hint=error.hint, **more
    )


@contextlib.contextmanager
def naming_fields() -> Iterator[None]:
    """Let refusals to start a run say which field of the request they are about."""
    try:
        yield
    except HoldfastError as error:
        if error.code in _FIELDS:
            error.facts["field"] = _FIELDS[error.code]
        raise


def request_id_of(request: Request) -> str:
    return str(request.scope.get("state", {}).get("request_id", ""))


async def on_holdfast_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HoldfastError)
    return from_error(error, request_id_of(request))


async def on_invalid_request(request: Request, error: Exception) -> Response:
    """Answer what was wrong and where; never the value itself, which may be a secret."""
    assert isinstance(error, RequestValidationError)
    errors = [{"where": [str(part) for part in found["loc"]], "message": found["msg"]} for found in error.errors()]
    detail = "; ".join(f"{'.'.join(found['where'])}: {found['message']}" for found in errors[:3])
    return problem(422, "request_invalid", detail, request_id=request_id_of(request), errors=errors)


async def on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _HTTP_CODES.get(error.status_code, "http_error")
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_list_methods(request))
    return problem(error.status_code, code, str(error.detail), request_id=request_id_of(request), headers=headers)


def _list_methods(request: Request) -> list[str]:
    """List the methods that a path has; the router names those of the first route with that path alone."""
    routes = request.app.router.routes
    return [
        method
        for method in _METHODS
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes)
    ]
