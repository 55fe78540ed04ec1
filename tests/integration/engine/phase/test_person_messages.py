"""What a person says to a phase: its agent reads it once, before its next call, and a replay is exact."""

import base64
import json
import uuid

import pytest
from tests.support.engine_world import World, artifact, template
from tests.support.model_server import ModelServer, Refuses, Says, asks

import holdfast.engine
from holdfast.engine.conversation.journal import message_event, to_phase_message
from holdfast.enums import Backend, RunStatus
from holdfast.images import to_image
from holdfast.persistence.statements import insert_images
from holdfast.persona import AgentPersona

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
REAL_BUILD_AGENT = holdfast.engine.build_agent
WORDS = "Mind the rounding."


async def test_a_message_reaches_its_phase_once_also_over_a_pause(world: World) -> None:
    run_id = str(uuid.uuid4())
    content = json.dumps(artifact(run_id, "spec"))
    image = to_image(b"\x89PNG\r\n\x1a\nshown", "shot.png")
    look = asks(("ls", {"path": "/"}))
    write = asks(("write_file", {"file_path": "/out/spec.json", "content": content}))
    # After the second call is refused the run pauses, and whoever resumes replays the first one.
    with ModelServer({"": [look, [Refuses(401), write], Says("Written.")]}) as server:
        persona = AgentPersona.model_validate(
            {
                "name": "mine",
                "version": 1,
                "backend": "openai_compatible",
                "base_url": server.address,
                "model": "main",
                "capabilities": ["spec_write"],
            }
        )
        engine = world.engine(pool=(persona,), backends=frozenset({Backend.OPENAI_COMPATIBLE}))
        holdfast.engine.build_agent = REAL_BUILD_AGENT
        said = [
            to_phase_message(message_event(run_id, words, by="me", images=[image]), phase)
            for words, phase in ((WORDS, "spec"), ("Not you.", "other"))
        ]
        rows = insert_images(run_id, [image])
        await engine.create(template("spec"), repo_path=world.repo, pre_allocated_run_id=run_id, then=said, beside=rows)
        paused = await engine.resume(run_id)
        done = await engine.resume(run_id)

    assert (paused.state, done.state) == (RunStatus.PAUSED, RunStatus.COMPLETED)
    delivered = [event for event in world.events(run_id, "step.completed") if "/inbox" in str(event.payload.get("key"))]
    assert [event.payload["key"] for event in delivered] == ["spec/1/turn1/inbox0"]
    texts = [json.dumps(each.body["messages"]) for each in server.received]
    assert [text.count(WORDS) for text in texts] == [1] * len(texts)
    assert [text.count(base64.b64encode(image.data).decode()) for text in texts] == [1] * len(texts)
    assert not any("Not you." in text for text in texts)
