"""What each route may answer, for the OpenAPI document: every refusal has the same shape."""

import json
from collections.abc import Mapping
from typing import Any

from holdfast.api.schemas import ProblemDetails
from holdfast.runtime.events import EventKind

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
    """Describe an answer that is a file, by media type with an example of each."""
    content = {
        media_type: {"schema": {} if media_type == "application/json" else {"type": "string"}, "example": example}
        for media_type, example in examples.items()
    }
    return {200: {"description": description, "content": content}}


HISTORY_RESPONSES: Responses = {
    **READ_ONE,
    **files(
        {"application/jsonl": '{"run_id": "3f2a", "seq": 1, "kind": "run.created"}\n'},
        description="The events that the run has now, one line of JSON each.",
    ),
}

# The names that programs know components by, where the class behind one has another.
COMPONENT_NAMES: Mapping[str, str] = {
    "AttemptSummary": "Try",
    "DiffLine": "Line",
    "Milestone": "Mark",
    "PersonaCard": "Portrait",
    "PhaseSummary": "PhaseOutlook",
    "StatusLine": "Telling",
    "WaitingList": "Inbox",
    "WorkflowFinding": "Finding",
    "WorkflowSummary": "Outlook",
}


def restore_component_names(document: dict[str, Any]) -> dict[str, Any]:
    """Call components what programs know them by, in their list and wherever the document refers to one."""
    text = json.dumps(document)
    for class_name, name in COMPONENT_NAMES.items():
        text = text.replace(f'"#/components/schemas/{class_name}"', f'"#/components/schemas/{name}"')
    renamed: dict[str, Any] = json.loads(text)
    schemas = renamed["components"]["schemas"]
    for class_name in COMPONENT_NAMES.keys() & schemas.keys():
        name = COMPONENT_NAMES[class_name]
        schemas[name] = {**schemas.pop(class_name), "title": name}
    return renamed


def add_problem_schema(document: dict[str, Any]) -> dict[str, Any]:
    """Put the one shape that all refusals refer to into the document."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = ProblemDetails.model_json_schema()
    schemas.pop("HTTPValidationError", None)
    schemas.pop("ValidationError", None)
    return document


_RUN = "3f2a0b9e-6c1d-4e8f-9a7b-2d5c8e1f0a34"
_HASH = "9c56cc51b374c3ba189210d5b6d4bf57790d351c96c47c02190ecf1e430635ab"

BY_FIELD: Mapping[str, Any] = {
    "run_id": _RUN,
    "approval_id": f"{_RUN}:plan:1",
    "id": "4be1c90a77f2",
    "token": "hf_4be1c90a77f2_Zk3vYw0q8mJx1n5cT7uRb2dLh9sPfAeG6iKoXyQzWtM",
    "code": "run_not_found",
    "type": "about:blank",
    "title": "Add a --verbose flag",
    "detail": "There is no run of that id.",
    "status": "ok",
    "request_id": "a3d1f0c2b4e5968778695a4b3c2d1e0f",
    "hint": "List the runs to see which there are.",
    "next_cursor": "WyIyMDI2LTAxLTA1VDA5OjEyOjMxLjQxMloiLCAiM2YyYSJd",
    "state": "running",
    "action": "approve",
    "role": "operator",
    "workflow": "feature-delivery",
    "workflows": ["feature-delivery", "spec-and-review"],
    "summary": "Add a --verbose flag.",
    "requirements_md": "Add a --verbose flag.",
    "repo_path": "/srv/code/shop",
    "path": "/srv/code/shop",
    "workspace_root": "/srv/code",
    "base_branch": "main",
    "started_by": "ana",
    "created_by": "ana",
    "decided_by": "ana",
    "first_by": "",
    "revoked_by": "",
    "name": "ci",
    "key": "plan",
    "phase_key": "plan",
    "role_id": "planner",
    "schema_id": "dev/plan@1",
    "artifact": "plan.json",
    "digest": _HASH,
    "hash": _HASH,
    "comment": "Go on.",
    "reason": "No longer needed.",
    "error": None,
    "findings": [],
    "errors": None,
    "shown": {"phase": "plan", "risk": "high"},
    "definition": {"name": "feature-delivery"},
    "description": "From a request to a reviewed change.",
    "source": "package",
    "version": "1",
    "pause_reason": None,
    "waiting_for": "This server works on 4 runs already, its limit.",
    "forked_from": None,
    "final_report_path": None,
    "cost_usd": 1.12,
    "simulated_usd": 0.0,
    "cost": "$1.12",
    "unsettled_usd": 0.04,
    "budget_usd": 4.0,
    "amount_usd": 2.5,
    "spent_usd": 1.12,
    "spent_today_usd": 1.12,
    "day_limit_usd": 20.0,
    "run_limit_usd": 4.0,
    "day": "2026-01-05",
    "seq": 214,
    "turn": 0,
    "attempt": 1,
    "attempts": 1,
    "model": "gpt-5",
    "persona": "openrouter-deepseek-spec-writer",
    "last_events": [
        {"run_id": _RUN, "seq": 214, "kind": EventKind.PHASE_STARTED.value, "ts": 1767604351.4, "payload": {}}
    ],
    "counts": {"running": 2, "completed": 40},
    "by_state": {"completed": 40, "failed": 2},
    "tone": "good",
    "shape": "good",
    "word": "Completed",
    "since": 1767604351.4,
    "until": 1767604389.9,
    "ts": 1767604389.9,
    "persona_overrides": {"planner": "openrouter-deepseek-spec-writer"},
}
_BY_TYPE: Mapping[str, Any] = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "null": None}
_MAX_DEPTH = 16


def compose(schema: Mapping[str, Any], schemas: Mapping[str, Any], *, name: str = "", depth: int = 0) -> Any:
    """Return a value that fits a schema: its own example, that of the field's name, or something of its type."""
    if "$ref" in schema:
        return compose(schemas[schema["$ref"].rpartition("/")[2]], schemas, name=name, depth=depth + 1)
    for own in schema.get("examples", ()):
        return own
    choices = schema.get("anyOf") or schema.get("allOf")
    if choices and depth < _MAX_DEPTH:
        return _compose_choice(choices, schemas, name, depth)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return BY_FIELD[name] if BY_FIELD.get(name) in schema["enum"] else schema["enum"][0]
    return _compose_type(schema, schemas, name, depth)


def _compose_choice(choices: list[Any], schemas: Mapping[str, Any], name: str, depth: int) -> Any:
    if name in BY_FIELD and BY_FIELD[name] is None and {"type": "null"} in choices:
        return None
    return compose(choices[0], schemas, name=name, depth=depth + 1)


def _compose_type(schema: Mapping[str, Any], schemas: Mapping[str, Any], name: str, depth: int) -> Any:
    kind = schema.get("type")
    if name.endswith("_at") and kind == "string":
        return "2026-01-05T09:12:31.412Z"
    known = BY_FIELD.get(name)
    if name in BY_FIELD and (kind is None or _is_of(known, kind)) and "properties" not in schema:
        return known
    if kind == "array" and "prefixItems" in schema:
        return [compose(item, schemas, depth=depth + 1) for item in schema["prefixItems"]]
    if kind == "array":
        return [] if depth > _MAX_DEPTH else [compose(schema.get("items", {}), schemas, depth=depth + 1)]
    if "properties" in schema:
        return {key: compose(field, schemas, name=key, depth=depth + 1) for key, field in schema["properties"].items()}
    return {} if kind == "object" or kind is None else _within(_BY_TYPE[kind], schema)


def _is_of(value: Any, kind: str) -> bool:
    types: Mapping[str, Any] = {"string": str, "integer": int, "number": (int, float), "array": list, "object": dict}
    return isinstance(value, types.get(kind, ())) and not isinstance(value, bool)


def _within(value: Any, schema: Mapping[str, Any]) -> Any:
    lowest = schema.get("minimum", schema.get("exclusiveMinimum"))
    return value if lowest is None or value > lowest else lowest + 1


def add_examples(document: dict[str, Any]) -> dict[str, Any]:
    """Give every request body and every answer in JSON an example, where it has none of its own."""
    schemas = document.get("components", {}).get("schemas", {})
    for methods in document["paths"].values():
        for operation in methods.values():
            bodies = [operation["requestBody"]] if "requestBody" in operation else []
            answers = [answer for status, answer in operation["responses"].items() if status.startswith("2")]
            for part in [*bodies, *answers]:
                for media_type, content in part.get("content", {}).items():
                    if media_type == "application/json" and content.get("schema") and "example" not in content:
                        content["example"] = compose(content["schema"], schemas)
    return document
