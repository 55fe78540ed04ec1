"""A program talks with an agent over HTTP as a person does at the prompt, and what it says is never lost."""

import asyncio
import base64
import json
from typing import Any

import pytest
from sqlalchemy import text
from tests.support.api.server_world import Api
from tests.support.progress_limit import waiting_until

from holdfast import engine
from holdfast.engine import build_agent
from holdfast.engine.conversation.journal import Conversation
from holdfast.errors import RunBusy
from holdfast.runtime.checkpoint.base import Claim
from holdfast.runtime.journal import Journal


@pytest.fixture
def talking(api: Api, monkeypatch: pytest.MonkeyPatch) -> Api:
    """With the agents that there really are."""
    monkeypatch.setattr(engine, "build_agent", build_agent)
    return api


async def begin(api: Api, **changes: Any) -> str:
    body = {"repo_path": str(api.repo), "text": "What is in here?", "simulate": True, **changes}
    answer = await api.operator.post("/api/conversations", json=body)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["run_id"])


async def read(api: Api, run_id: str) -> Conversation:
    server = await api.app.state.holder.get()
    return Conversation.of(await server.journal.read(run_id))


async def wait_for_answers(api: Api, run_id: str, count: int) -> Conversation:
    """The conversation once that many turns are over and it waits for the next message."""
    while True:
        detail = await api.wait_for(run_id, "paused")
        conversation = await read(api, run_id)
        if sum(turn.is_over for turn in conversation.turns) >= count and not conversation.waiting:
            return conversation
        await api.wait_for_event(run_id, after=detail["seq"])


async def test_a_conversation_is_begun_answered_and_gone_on_with(talking: Api) -> None:
    run_id = await begin(talking)
    await wait_for_answers(talking, run_id, 1)

    sent = await talking.operator.post(f"/api/runs/{run_id}/messages", json={"text": "And what else?"})
    conversation = await wait_for_answers(talking, run_id, 2)

    assert sent.status_code == 202, sent.text
    assert [message.text for message in conversation.messages.values()] == ["What is in here?", "And what else?"]
    assert conversation.messages[sent.json()["seq"]].text == "And what else?"
    assert [turn.error for turn in conversation.turns] == [None, None]
    server = await talking.app.state.holder.get()
    said = [event for event in await server.journal.read(run_id) if event.kind == "message.received"]
    assert [event.payload["by"] for event in said] == ["operator", "operator"]
    detail = (await talking.viewer.get(f"/api/runs/{run_id}")).json()
    assert (detail["title"], detail["started_by"]) == ("What is in here?", "operator")


async def test_images_go_along_and_reach_no_follower(talking: Api) -> None:
    data = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40
    image = {"name": "shot.png", "data": base64.b64encode(data).decode()}
    (talking.repo / "words.txt").write_text("these words")
    (talking.repo / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\nanother")
    run_id = await begin(talking, images=[image], text="What is in @picture.png and @words.txt?")
    await wait_for_answers(talking, run_id, 1)

    sent = await talking.operator.post(f"/api/runs/{run_id}/messages", json={"text": "Again.", "images": [image]})
    await wait_for_answers(talking, run_id, 2)

    assert sent.status_code == 202, sent.text
    conversation = await read(talking, run_id)
    assert [str(label) for message in conversation.messages.values() for label in message.images] == [
        "image shot.png (PNG, 10 kB)",
        "image picture.png (PNG, 15 B)",
        "image shot.png (PNG, 10 kB)",
    ]
    assert "these words" in next(iter(conversation.messages.values())).content
    server = await talking.app.state.holder.get()
    async with server.db.session() as session:
        rows = (await session.execute(text("SELECT data FROM run_images"))).all()
    assert sorted(bytes(row[0]) for row in rows) == sorted([data, b"\x89PNG\r\n\x1a\nanother"]), "stored once"
    history = (await talking.viewer.get(f"/api/runs/{run_id}/history")).text
    assert "shot.png" in history
    assert image["data"][100:200] not in history


@pytest.mark.parametrize(
    "image",
    [
        {"data": "no base64!"},
        {"data": base64.b64encode(b"<svg/>").decode()},
        {"data": base64.b64encode(b"\x89PNG\r\n\x1a\n").decode(), "media_type": "image/gif"},
    ],
)
async def test_what_is_no_image_is_refused_with_its_code(talking: Api, image: dict[str, str]) -> None:
    body = {"repo_path": str(talking.repo), "text": "Look.", "simulate": True, "images": [image]}
    answer = await talking.operator.post("/api/conversations", json=body)

    assert (answer.status_code, answer.json()["code"]) == (422, "image_invalid")


async def test_messages_sent_at_once_are_all_answered(talking: Api) -> None:
    run_id = await begin(talking)

    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(talking.operator.post(f"/api/runs/{run_id}/messages", json={"text": f"Word {number}"}))
    conversation = await wait_for_answers(talking, run_id, 1)

    assert len(conversation.messages) == 9
    assert conversation.delivered == set(conversation.messages)


async def claim_when_free(journal: Journal, run_id: str) -> Claim:
    """Claim a run as soon as the server, whose answer is out already, has given it up."""
    with waiting_until("the run is nobody's"):
        while True:
            try:
                return await journal.claim(run_id)
            except RunBusy:
                await asyncio.sleep(0.01)


async def test_a_message_reaches_a_conversation_that_another_process_has_just_left(talking: Api) -> None:
    run_id = await begin(talking)
    await wait_for_answers(talking, run_id, 1)
    server = await talking.app.state.holder.get()
    claim = await claim_when_free(server.journal, run_id)

    sent = await talking.operator.post(f"/api/runs/{run_id}/messages", json={"text": "Are you there?"})
    with pytest.raises(RunBusy):
        await (await server.engines.for_repository(talking.repo)).resume(run_id)
    await server.journal.release(claim)
    conversation = await wait_for_answers(talking, run_id, 2)

    assert sent.status_code == 202
    assert len(conversation.turns) == 2


async def test_the_same_key_begins_one_conversation_with_one_message(talking: Api) -> None:
    body = {"repo_path": str(talking.repo), "text": "Once.", "simulate": True}
    headers = {"Idempotency-Key": "talk"}

    answers = await asyncio.gather(
        *(talking.operator.post("/api/conversations", json=body, headers=headers) for _ in range(5))
    )
    other = await talking.operator.post("/api/conversations", json={**body, "text": "Twice."}, headers=headers)

    (run_id,) = {answer.json()["run_id"] for answer in answers}
    assert len((await wait_for_answers(talking, run_id, 1)).messages) == 1
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


async def test_who_answers_and_on_which_model_can_change(talking: Api) -> None:
    personas = (await talking.viewer.get("/api/personas")).json()["items"]
    names = sorted(item["name"] for item in personas if item["definition"]["backend"] == "simulated")
    run_id = await begin(talking, persona=names[0])
    await wait_for_answers(talking, run_id, 1)

    await talking.operator.post(f"/api/runs/{run_id}/messages", json={"text": "You?", "persona": names[-1]})
    await wait_for_answers(talking, run_id, 2)
    unknown = await talking.operator.post(f"/api/runs/{run_id}/messages", json={"text": "You?", "persona": "nobody"})
    conversation = await read(talking, run_id)

    last = list(conversation.messages.values())[-1]
    assert last.persona is not None
    assert last.persona.name == names[-1]
    assert (unknown.status_code, unknown.json()["code"]) == (422, "persona_not_found")
    assert len(conversation.messages) == 2


async def test_only_an_open_conversation_takes_messages(talking: Api) -> None:
    over = await begin(talking)
    await wait_for_answers(talking, over, 1)
    await talking.operator.post(f"/api/runs/{over}/abort")
    workflow = await talking.start()
    await talking.wait_for(workflow)

    refusals = [
        await talking.operator.post(f"/api/runs/{run_id}/messages", json={"text": "Hello?"})
        for run_id in (over, workflow, "none")
    ]

    assert [(answer.status_code, answer.json()["code"]) for answer in refusals] == [
        (409, "run_already_terminal"),
        (409, "run_already_terminal"),
        (404, "run_not_found"),
    ]


@pytest.mark.parametrize("text", ["", "a\0b", "\ud800", 5, None])
async def test_words_that_are_none_are_refused(talking: Api, text: Any) -> None:
    content = json.dumps({"text": text}).encode()
    answer = await talking.operator.post(
        "/api/runs/none/messages", content=content, headers={"Content-Type": "application/json"}
    )

    assert answer.status_code == 422


async def test_a_conversation_about_a_foreign_folder_is_refused(talking: Api, tmp_path: Any) -> None:
    body = {"repo_path": str(tmp_path), "text": "What is in here?", "simulate": True}

    answer = await talking.operator.post("/api/conversations", json=body)

    assert (answer.status_code, answer.json()["code"]) == (403, "repository_not_allowed")
