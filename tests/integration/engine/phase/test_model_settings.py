"""How long a model is waited for and how often it is asked is the user's to say: in a persona, or for all of them."""

import json
from typing import Any

import pytest
from tests.support.engine_world import World, artifact, template
from tests.support.model_server import Hangs, ModelServer, Refuses, Reply, Says, asks

import holdfast.engine
from holdfast.engine import RunResult
from holdfast.enums import Backend, RunStatus
from holdfast.persona import AgentPersona

# What stores do is not in question here.
pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

REAL_BUILD_AGENT = holdfast.engine.build_agent
SLOW = Says("a " * 200, piece_chars=1, pause_s=0.05)
SOON = {"max_wait_s": 0.01}
MANY = {"tries": 50}  # on a busy machine an answer that comes at once may take longer than half a second, too


async def run_on(server: ModelServer, world: World, settings: dict[str, Any], **fields: Any) -> RunResult:
    """A run of one phase by a persona with these fields, in a process with these settings."""
    persona = AgentPersona.model_validate(
        {
            "name": "mine",
            "version": 1,
            "backend": "openai_compatible",
            "base_url": server.address,
            "model": "main",
            "capabilities": ["spec_write"],
            **fields,
        }
    )
    engine = world.engine(pool=(persona,), backends=frozenset({Backend.OPENAI_COMPATIBLE}), **settings)
    holdfast.engine.build_agent = REAL_BUILD_AGENT  # the last word, for the world's engines bring agents of their own
    return await engine.run(template("spec"), repo_path=world.repo)


def serve(*first: Reply) -> ModelServer:
    """Answers the first call in turn with these, and then does the work."""
    content = artifact("00000000-0000-4000-8000-000000000000", "spec")
    write = asks(("write_file", {"file_path": "/out/spec.json", "content": json.dumps(content)}))
    return ModelServer({"": [[*first, write], Says("Written.")]})


def codes(world: World, result: RunResult) -> list[str]:
    return [event.payload["error"]["code"] for event in world.events(result.run_id, "model.error")]


@pytest.mark.parametrize(
    ("reply", "fields", "settings"),
    [
        (SLOW, {"answer_timeout_s": 0.5}, {}),
        (SLOW, {}, {"model_answer_timeout_s": "0.5"}),
        (SLOW, {"answer_timeout_s": 0.5}, {"model_answer_timeout_s": 600}),
        (Hangs(), {"idle_timeout_s": 0.5}, {}),
        (Hangs(), {}, {"model_idle_timeout_s": 0.5}),
    ],
    ids=["answer", "answer-of-all", "the-personas-own-counts", "idle", "idle-of-all"],
)
async def test_a_model_is_waited_for_as_long_as_the_user_says(
    world: World, reply: Reply, fields: dict[str, Any], settings: dict[str, Any]
) -> None:
    with serve(reply) as server:
        result = await run_on(server, world, settings, **SOON, **MANY, **fields)

    assert (result.state, set(codes(world, result))) == (RunStatus.COMPLETED, {"timed_out"})
    assert (server.places[:2], server.places[-1]) == ([("", 0), ("", 0)], ("", 1))


async def test_slow_bytes_are_waited_for_where_the_user_says_so(world: World) -> None:
    slow = Says("Slowly. " * 4, piece_chars=4, pause_s=0.1)
    with ModelServer({"": [slow, slow]}) as server:
        result = await run_on(server, world, {"model_answer_timeout_s": 0.2}, answer_timeout_s=3600, tries=1)

    assert codes(world, result) == []


@pytest.mark.parametrize(
    ("fields", "settings", "expected"),
    [
        ({"tries": 1}, {}, 1),
        ({}, {"model_tries": 2}, 2),
        ({"tries": 3}, {"model_tries": 2}, 3),
        ({}, {}, 4),
    ],
    ids=["own", "of-all", "own-counts", "default"],
)
async def test_a_model_is_asked_as_often_as_the_user_says(
    world: World, fields: dict[str, Any], settings: dict[str, Any], expected: int
) -> None:
    with ModelServer({"": [Refuses(500)]}) as server:
        result = await run_on(server, world, settings, **SOON, **fields)

    assert (result.state, result.waiting_for) == (RunStatus.PAUSED, "provider")
    assert len(server.received) == expected
    assert codes(world, result) == ["server_error"] * expected


@pytest.mark.parametrize(
    ("fields", "settings"), [({"max_wait_s": 0.3}, {}), ({}, {"model_max_wait_s": 0.3})], ids=["own", "of-all"]
)
async def test_a_longer_wait_than_the_user_wants_goes_to_the_next_model(
    world: World, fields: dict[str, Any], settings: dict[str, Any]
) -> None:
    with serve(Refuses(429, {"retry-after": "0.1"}), Refuses(429, {"retry-after": "2"})) as server:
        result = await run_on(server, world, settings, fallback_models=["second"], **fields)

    assert result.state is RunStatus.COMPLETED
    assert [received.body["model"] for received in server.received][:3] == ["main", "main", "second"]
