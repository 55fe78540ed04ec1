"""A conversation that is killed anywhere and gone on with ends as if nothing had happened."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.crash.engine.conftest import NewWorld
from tests.support.crash.conversation_child import MEANWHILE, SAID, script
from tests.support.crash.kill_matrix import Matrix, choose
from tests.support.crash.points import IS_TORTURE
from tests.support.crash.run_outcome import read_files, tell_steps
from tests.support.crash.workflow_child import RUN_ID
from tests.support.engine_processes import Zygote
from tests.support.engine_world import World
from tests.support.model_server import ModelServer

from holdfast.engine.audit import check_database
from holdfast.engine.conversation.journal import read_conversation

KINDS = ("sqlite", "postgres")
SHARE = 12 if IS_TORTURE else 1
# Beside what differs from run to run: which numbers events have, since a resumption takes one, and how often a model
# was asked for one answer.
_NUMBERS = frozenset({"messages", "until", "attempt"})
_STREAM_KINDS = {"text.delta", "agent.progress"}


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer(script()) as server:
        yield server


@pytest.fixture(scope="module")
def matrix(new_world: NewWorld, zygote: Zygote, server: ModelServer) -> Matrix:
    async def read(world: World) -> dict[str, Any]:
        return {**await read_talk(world), "last asked": last_messages(server)}

    return Matrix("talk_on", "paused", read, new_world, zygote, (server.address,))


async def read_talk(world: World) -> dict[str, Any]:
    """Everything that must be the same."""
    assert [str(item) for item in await check_database(world.db)] == []
    conversation = await read_conversation(world.db, RUN_ID)
    texts = {seq: message.text for seq, message in conversation.messages.items()}
    events = [event for event in world.events(RUN_ID) if event.kind not in _STREAM_KINDS]
    inboxes = [event for event in events if "/inbox" in str(event.payload.get("key", ""))]
    return {
        "messages": list(texts.values()),
        "turns": [(turn.number, [texts[seq] for seq in turn.messages], turn.error) for turn in conversation.turns],
        "told meanwhile": [texts[seq] for event in inboxes for seq in event.payload["result"]["messages"]],
        "waiting": conversation.waiting,
        "steps": tell_steps(events, _NUMBERS),
        "files": read_files(world),
        "trees": [world.git("rev-parse", f"{ref}^{{tree}}") for ref in _snapshots(world)],
    }


def _snapshots(world: World) -> list[str]:
    listed = world.git("for-each-ref", "--format=%(refname)", f"refs/holdfast/{RUN_ID}").splitlines()
    return [ref for ref in listed if "@" not in ref]


def last_messages(server: ModelServer) -> str:
    """The whole conversation, as the model was shown it with the last question."""
    return json.dumps(server.received[-1].body["messages"])


async def test_a_conversation_has_its_turns_its_files_and_its_price(matrix: Matrix) -> None:
    outcome, points, settled = await matrix.undisturbed("sqlite")

    assert outcome["messages"] == [*SAID[:2], MEANWHILE, SAID[2]]
    assert [messages for _number, messages, _error in outcome["turns"]] == [[text] for text in SAID]
    assert outcome["told meanwhile"] == [MEANWHILE]
    assert outcome["files"]["greeting.txt"] == "HELLO\n"
    assert outcome["files"]["notes.txt"] == "louder\n"
    assert outcome["files"]["thanks.txt"] == "Thank you.\n"
    assert len(outcome["trees"]) == 3
    assert len(points) > 50
    assert settled > 0


@pytest.mark.parametrize("share", range(SHARE))
@pytest.mark.parametrize("kind", KINDS)
async def test_a_conversation_killed_at_any_append_or_effect_ends_the_same(
    kind: str, share: int, matrix: Matrix
) -> None:
    points = (await matrix.undisturbed(kind)).points

    for point in choose(len(points), f"conversation {kind}", 1 if kind == "postgres" else 2)[share::SHARE]:
        await matrix.kill_once(kind, point)


@pytest.mark.parametrize("kind", KINDS if IS_TORTURE else KINDS[:1])
async def test_a_conversation_killed_twice_ends_the_same(kind: str, matrix: Matrix) -> None:
    await matrix.kill_twice(kind, 60 if IS_TORTURE else 1)
