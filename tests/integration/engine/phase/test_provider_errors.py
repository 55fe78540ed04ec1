"""What a provider says when it does not answer: a code of its own each, its words, what to do, and a run that waits."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from tests.support.engine_world import World, artifact, phase
from tests.support.model_server import Breaks, ModelServer, Refuses, Reply, Says, asks
from tests.support.served_engine import RUN_ID, ServedEngine

from holdfast.engine.results import RunResult
from holdfast.enums import Backend, RunStatus

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
WRITES = asks(("write_file", {"file_path": "/out/spec.json", "content": json.dumps(artifact(RUN_ID, "spec"))}))
TOMORROW = format_datetime(datetime.now(UTC) + timedelta(days=1), usegmt=True)


def openai_body(message: str, code: str | None = None) -> str:
    return json.dumps({"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}})


def anthropic_body(kind: str, message: str) -> str:
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"})


def openrouter_body(code: int, message: str, **metadata: Any) -> str:
    return json.dumps({"error": {"code": code, "message": message, "metadata": metadata}, "user_id": "u"})


WAITS: dict[str, tuple[Reply, str, str]] = {
    "openai 401": (
        Refuses(401, body=openai_body("Incorrect API key provided: sk-ab***yz.", "invalid_api_key")),
        "provider_key_refused",
        "Incorrect API key provided",
    ),
    "openai 403": (
        Refuses(403, body=openai_body("Country, region, or territory not supported")),
        "provider_access_denied",
        "territory not supported",
    ),
    "openai 404": (
        Refuses(404, body=openai_body("The model `my-model` does not exist", "model_not_found")),
        "provider_model_not_found",
        "The model `my-model` does not exist",
    ),
    "openai quota": (
        Refuses(429, body=openai_body("You exceeded your current quota, please check your plan", "insufficient_quota")),
        "provider_credit_exhausted",
        "You exceeded your current quota",
    ),
    "openrouter 402": (
        Refuses(402, body=openrouter_body(402, "Insufficient credits. Add more using openrouter.ai/credits")),
        "provider_credit_exhausted",
        "Insufficient credits",
    ),
    "openrouter 502": (
        Refuses(502, body=openrouter_body(502, "Provider returned error", raw="upstream is down", provider_name="x")),
        "provider_unavailable",
        "Provider returned error: upstream is down",
    ),
    "anthropic credit": (
        Refuses(400, body=anthropic_body("invalid_request_error", "Your credit balance is too low to access the API")),
        "provider_credit_exhausted",
        "Your credit balance is too low",
    ),
    "anthropic 529": (
        Refuses(529, body=anthropic_body("overloaded_error", "Overloaded")),
        "provider_unavailable",
        "Overloaded",
    ),
    "ollama 404": (
        Refuses(404, body=json.dumps({"error": 'model "my-model" not found, try pulling it first'})),
        "provider_model_not_found",
        "try pulling it first",
    ),
    "retry in an hour": (
        Refuses(429, {"retry-after": "3600"}, message="Rate limit reached"),
        "provider_rate_limited",
        "Rate limit reached",
    ),
    "retry at a date": (
        Refuses(429, {"retry-after": TOMORROW}, message="Rate limit reached"),
        "provider_rate_limited",
        "Rate limit reached",
    ),
    "html": (Refuses(503, body="<html><body>Bad gateway</body></html>"), "provider_unavailable", "HTTP 503"),
    "cut": (Breaks("cut"), "provider_unavailable", "does not answer"),
}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def facts_of(result: RunResult) -> dict[str, Any]:
    assert result.error is not None
    return {"code": result.error.code, "message": result.error.message, "hint": result.error.hint}


@pytest.mark.parametrize("case", WAITS)
async def test_the_run_waits_and_a_resume_goes_on(world: World, stack: ExitStack, case: str) -> None:
    reply, code, words = WAITS[case]
    server = stack.enter_context(ModelServer({"": [[reply, WRITES], Says("Done.")]}))
    # So long everybody leaves alone a provider that asks for more, whoever resumes too.
    served = ServedEngine(world, server, max_wait_s=0.3)

    paused = await served.start(phase("spec"))

    assert (paused.state, paused.waiting_for) == (RunStatus.PAUSED, "provider")
    facts = facts_of(paused)
    assert facts["code"] == code
    assert words in facts["message"]
    assert f"holdfast resume {RUN_ID[:8]}" in facts["hint"]
    if "retry" in case:
        assert "UTC" in facts["hint"]
    for name in ("Error", "Exception", "openai."):
        assert name not in facts["message"].replace("Provider returned error", "")
    [event] = world.events(RUN_ID, "run.paused")
    assert event.payload["error"]["code"] == code

    done = await served.open().resume(RUN_ID)

    assert (done.state, done.error) == (RunStatus.COMPLETED, None)
    assert [item.attempts for item in done.phases] == [1]
    assert server.places == [("", 0), ("", 0), ("", 1)]


async def test_what_was_paid_before_the_pause_is_not_paid_again(world: World, stack: ExitStack) -> None:
    server = stack.enter_context(
        ModelServer({"": [asks(("ls", {"path": "/"})), [Refuses(401), WRITES], Says("Done.")]})
    )
    served = ServedEngine(world, server)

    assert (await served.start(phase("spec"))).waiting_for == "provider"
    assert (await served.open().resume(RUN_ID)).state is RunStatus.COMPLETED

    assert server.places == [("", 0), ("", 1), ("", 1), ("", 2)]


async def test_a_subagents_provider_makes_the_run_wait_too(world: World, stack: ExitStack) -> None:
    task = asks(("task", {"description": "Sub work", "subagent_type": "general-purpose"}))
    script = {"Sub work": [[Refuses(402), Says("Sub done.")]], "": [task, WRITES, Says("Done.")]}
    server = stack.enter_context(ModelServer(script))
    served = ServedEngine(world, server)

    paused = await served.start(phase("spec"))

    assert (paused.waiting_for, facts_of(paused)["code"]) == ("provider", "provider_credit_exhausted")
    assert (await served.open().resume(RUN_ID)).state is RunStatus.COMPLETED


FAILS: dict[str, tuple[Reply, str, str]] = {
    "invalid request": (
        Refuses(400, body=openai_body("Unsupported value: 'temperature'")),
        "provider_request_refused",
        "Unsupported value: 'temperature'",
    ),
    "too long": (
        Refuses(400, message="maximum context length is 10 tokens", code="context_length_exceeded"),
        "provider_context_exceeded",
        "is too long for it: maximum context length is 10 tokens",
    ),
    "garbage": (Breaks("garbage"), "provider_answer_invalid", "gave no whole answer"),
    "refusal": (Says("", refusal="I cannot help with that."), "model_refused", "I cannot help with that."),
    "content filter": (Says("It", finish_reason="content_filter"), "model_refused", "refused to answer: It"),
    "filter without a word": (Says("", finish_reason="content_filter"), "model_refused", "content filter"),
}


@pytest.mark.parametrize("case", FAILS)
async def test_what_neither_time_nor_a_key_puts_right_fails_with_its_words(
    world: World, stack: ExitStack, case: str
) -> None:
    reply, code, words = FAILS[case]
    server = stack.enter_context(ModelServer({"": [reply]}))

    failed = await ServedEngine(world, server).start(phase("spec"))

    facts = facts_of(failed)
    assert (failed.state, facts["code"]) == (RunStatus.FAILED, code)
    assert words in facts["message"]
    assert "Error" not in facts["message"]


async def test_a_refusal_is_an_answer_that_was_paid_for(world: World, stack: ExitStack) -> None:
    server = stack.enter_context(ModelServer({"": [Says("", refusal="I cannot help with that.")]}))

    await ServedEngine(world, server).start(phase("spec"))

    [response] = world.events(RUN_ID, "model.response")
    assert response.payload["result"]["refusal"] == "I cannot help with that."
    assert [row.state for row in await world.ledger(RUN_ID)] == ["settled"]


async def test_a_server_that_is_not_there_makes_the_run_wait(world: World, stack: ExitStack) -> None:
    server = stack.enter_context(ModelServer({"": [WRITES]}))
    served = ServedEngine(world, server, base_url="http://127.0.0.1:9/v1")

    paused = await served.start(phase("spec"))

    assert (paused.waiting_for, facts_of(paused)["code"]) == ("provider", "provider_unavailable")
    assert "my-model at 127.0.0.1:9 does not answer" in facts_of(paused)["message"]


@pytest.mark.parametrize("backend", [Backend.ANTHROPIC, Backend.OLLAMA])
@pytest.mark.parametrize(("status", "code"), [(401, "provider_key_refused"), (404, "provider_model_not_found")])
async def test_other_clients_errors_are_understood_too(
    world: World, stack: ExitStack, monkeypatch: pytest.MonkeyPatch, backend: Backend, status: int, code: str
) -> None:
    monkeypatch.setenv("SERVED_KEY", "a-key-of-the-test")
    bodies = {
        Backend.ANTHROPIC: anthropic_body("some_error", "that is wrong here"),
        Backend.OLLAMA: json.dumps({"error": "that is wrong here"}),
    }
    server = stack.enter_context(ModelServer({"": [Refuses(status, body=bodies[backend])]}))
    address = server.address.removesuffix("/v1")
    served = ServedEngine(world, server, backend=backend, base_url=address, api_key_env="SERVED_KEY")

    paused = await served.start(phase("spec"))

    assert paused.waiting_for == "provider"
    assert facts_of(paused)["code"] == code
    assert "that is wrong here" in facts_of(paused)["message"]
