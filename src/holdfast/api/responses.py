"""What each route may answer, for the OpenAPI document: every refusal has the same shape."""

from collections.abc import Mapping
from typing import Any

from holdfast.api.schemas import Problem

Responses = dict[int | str, dict[str, Any]]

_REASONS = {
    400: "The request cannot be understood.",
    401: "No valid token or session.",
    403: "The role is too low, or the request came from a foreign origin.",
    404: "There is no such thing.",
    408: "The body came too slowly.",
    409: "Not in this state.",
    413: "The body is too large.",
    416: "The range lies outside.",
    421: "This server does not answer to that host.",
    422: "A field is wrong, missing or unknown.",
    429: "Too many attempts.",
    503: "The database cannot be reached.",
}


def problems(*statuses: int) -> Responses:
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": _REASONS[status], "content": content} for status in statuses}


OPEN = problems(421, 422)
READ = problems(401, 403, 421, 422, 429, 503)
READ_ONE = {**READ, **problems(404)}
WRITE = {**READ, **problems(400, 408, 413)}
WRITE_ONE = {**WRITE, **problems(404, 409)}


def _stream(example: str) -> Responses:
    content = {"text/event-stream": {"schema": {"type": "string"}, "example": example}}
    return {200: {"description": "The events, as they happen.", "content": content}}


STREAM_RESPONSES: Responses = {
    **READ_ONE,
    **problems(400),
    **_stream('id: 1\nevent: run.created\ndata: {"run_id": "3f2a", "seq": 1, "kind": "run.created"}\n\n'),
}
FEED_RESPONSES: Responses = {
    **READ,
    **problems(400),
    **_stream(
        'id: 41\nevent: ready\ndata: {"position": 41}\n\n'
        'id: 42\nevent: run.created\ndata: {"run_id": "3f2a", "seq": 1, "kind": "run.created"}\n\n'
    ),
}


def files(examples: Mapping[str, Any], *, description: str) -> Responses:
    """Answers that are files, by media type with an example of each."""
    content = {
        media_type: {"schema": {} if media_type == "application/json" else {"type": "string"}, "example": example}
        for media_type, example in examples.items()
    }
    return {200: {"description": description, "content": content}}


def add_problem_schema(document: dict[str, Any]) -> dict[str, Any]:
    """Put the one shape that all refusals refer to into the document."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = Problem.model_json_schema()
    schemas.pop("HTTPValidationError", None)
    schemas.pop("ValidationError", None)
    return document
