"""An agent whose repair turn ends without a valid file is asked for the file itself, by its schema if possible."""

import asyncio
import json
from typing import Any

import pytest
from tests.support.engine_world import World, artifact, template
from tests.support.model_server import Hangs, ModelServer, Refuses, Reply, Says, asks
from tests.support.progress_limit import until

import holdfast.engine
from holdfast.engine import RunResult, WorkflowEngine
from holdfast.enums import Backend, RunStatus
from holdfast.persona import AgentPersona

# What stores do is not in question here.
pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

REAL_BUILD_AGENT = holdfast.engine.build_agent
SPEC = artifact("00000000-0000-4000-8000-000000000000", "spec")
WHOLE = Says(json.dumps(SPEC))
DONE = Says("Done.")


def open_engine(server: ModelServer, world: World, **fields: Any) -> WorkflowEngine:
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
    engine = world.engine(pool=(persona,), backends=frozenset({Backend.OPENAI_COMPATIBLE}))
    holdfast.engine.build_agent = REAL_BUILD_AGENT  # the last word, for the world's engines bring agents of their own
    return engine


async def run_on(server: ModelServer, world: World, **fields: Any) -> RunResult:
    return await open_engine(server, world, **fields).run(template("spec"), repo_path=world.repo)


def serve(*last: Reply) -> ModelServer:
    """A model that forgets its file twice, and is then asked for it."""
    return ModelServer({"": [DONE, last]})


def formats(server: ModelServer) -> list[str]:
    """How each call asked for its answer."""
    return [received.body.get("response_format", {}).get("type", "") for received in server.received]


async def test_the_answer_by_the_schema_becomes_the_file(world: World) -> None:
    with serve(WHOLE) as server:
        result = await run_on(server, world)

    assert result.state is RunStatus.COMPLETED
    assert json.loads((world.worktree(result.run_id) / "out/spec.json").read_text()) == SPEC
    assert formats(server) == ["", "", "json_schema"]
    body = server.received[-1].body
    assert body["response_format"]["json_schema"]["strict"] is True
    assert set(body["response_format"]["json_schema"]["schema"]["required"]) == set(SPEC)
    assert (body["tool_choice"], body["messages"][-1]["role"]) == ("none", "user")
    assert [row.state for row in await world.artifacts(result.run_id)] == ["accepted"]
    assert len(world.events(result.run_id, "model.response")) == 3


async def test_a_server_that_refuses_it_is_asked_in_words(world: World) -> None:
    with serve(Refuses(400, message="unknown field: response_format"), WHOLE) as server:
        result = await run_on(server, world)

    assert result.state is RunStatus.COMPLETED
    assert formats(server) == ["", "", "json_schema", ""]
    assert world.events(result.run_id, "model.error") == []
    [progress] = [
        event for event in world.events(result.run_id, "agent.progress") if "structured_output" in event.payload
    ]
    assert "unknown field: response_format" in progress.payload["error"]["words"]
    assert [entry.state for entry in await world.ledger(result.run_id)] == ["settled"] * 3


@pytest.mark.parametrize(
    "last",
    [Says("I have nothing."), Says("{}"), Says('{"runId": 1} and more'), asks(("ls", {"path": "/"}))],
    ids=["words", "invalid", "trailing", "tools"],
)
async def test_a_server_that_ignores_it_leaves_the_phase_without_its_file(world: World, last: Reply) -> None:
    with ModelServer({"": [DONE, last, DONE]}) as server:
        result = await run_on(server, world)

    assert result.state is RunStatus.FAILED
    assert result.error is not None
    assert result.error.code == "artifact_missing"
    assert formats(server).count("json_schema") == 1


async def test_a_code_block_around_the_answer_is_no_matter(world: World) -> None:
    with serve(Says(f"```json\n{json.dumps(SPEC, indent=1)}\n```")) as server:
        result = await run_on(server, world)

    assert result.state is RunStatus.COMPLETED


async def test_an_agent_that_answers_with_the_file_by_itself_is_not_asked_again(world: World) -> None:
    with ModelServer({"": [[DONE, WHOLE]]}) as server:
        result = await run_on(server, world)

    assert result.state is RunStatus.COMPLETED
    assert formats(server) == ["", ""]


async def test_an_invalid_file_is_named_with_its_findings_and_replaced(world: World) -> None:
    bad = asks(("write_file", {"file_path": "/out/spec.json", "content": json.dumps({**SPEC, "approach": "short"})}))
    with ModelServer({"": [[bad, DONE], [DONE, WHOLE]]}) as server:
        result = await run_on(server, world)

    assert result.state is RunStatus.COMPLETED
    assert "approach" in json.dumps(server.received[-1].body["messages"][-1])
    assert json.loads((world.worktree(result.run_id) / "out/spec.json").read_text()) == SPEC


async def test_a_persona_that_wants_none_of_it_fails_as_before(world: World) -> None:
    with serve(WHOLE) as server:
        result = await run_on(server, world, structured_output="never")

    assert result.state is RunStatus.FAILED
    assert formats(server) == ["", ""]


async def test_a_run_cut_off_in_the_question_goes_on_with_the_same_question(world: World) -> None:
    with serve(Hangs(), WHOLE) as server:
        engine = open_engine(server, world)
        task = asyncio.create_task(engine.run(template("spec"), repo_path=world.repo))
        await until(lambda: len(server.received) == 3, "the question")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        [run_id] = world.db.store.list_runs()
        result = await open_engine(server, world).resume(run_id)

    assert result.state is RunStatus.COMPLETED
    assert formats(server) == ["", "", "json_schema", "json_schema"]
    assert server.received[2].body["messages"] == server.received[3].body["messages"]
