"""A phase on a model server, killed anywhere: the server is asked no more than undisturbed, but for calls in flight."""

import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.agents.killed_phase import Player, starting_player
from tests.support.model_server import Breaks, ModelServer, Refuses, Says, asks

ROOT = Path(__file__).parents[4]
SEED = int(os.environ.get("HOLDFAST_SEED", "1"))
IS_TORTURE = os.environ.get("HOLDFAST_TORTURE") == "1"
Play = Callable[..., dict[str, Any]]


def helper(word: str) -> tuple[str, dict[str, str]]:
    return "task", {"description": f"{word}: write the file.", "subagent_type": "general-purpose"}


def script() -> dict[str, Any]:
    """Parallel calls, two helpers beside each other, an edit, and a server that is busy or breaks off now and then."""
    return {
        "first-part": [asks(("write_file", {"file_path": "/one.txt", "content": "one\n"})), Says("One is written.")],
        "second-part": [
            [Refuses(429, {"retry-after": "0"}), asks(("write_file", {"file_path": "/two.txt", "content": "two\n"}))],
            Says("Two is written."),
        ],
        "": [
            asks(("ls", {"path": "/"}), ("read_file", {"file_path": "/README.md"}), text="I look around."),
            asks(helper("first-part"), helper("second-part"), ("ls", {"path": "/src"})),
            [Breaks("cut"), asks(("edit_file", _edit("Sample", "Example")), ("edit_file", _edit("Gone", "Gone")))],
            Says("All is done."),
        ],
    }


def _edit(old: str, new: str) -> dict[str, str]:
    return {"file_path": "/README.md" if old == "Sample" else "/src/app.py", "old_string": old, "new_string": new}


@pytest.fixture(scope="module")
def player() -> Iterator[Player]:
    with starting_player("served_phase_server") as player:
        yield player


@pytest.fixture
def play(player: Player, tmp_path: Path) -> Play:
    def play(name: str, *dies_at: int) -> dict[str, Any]:
        with ModelServer(script()) as server:
            answer = player.play(tmp_path / name, *dies_at, address=server.address)
            return {**answer, "asked": Counter(server.places)}

    return play


def test_a_served_phase_killed_anywhere_ends_the_same(play: Play) -> None:
    undisturbed = play("undisturbed")
    points = undisturbed["result"]["points"]
    chosen = range(len(points)) if IS_TORTURE else random.Random(SEED).sample(range(len(points)), 2)

    for first in chosen:
        point, answer = first, play(f"killed-{first}", first)
        while answer["deaths"] == [0] and point > 0.75 * len(points):
            # Calls beside each other may share an append: it was over before so many points. Kill one an append sooner.
            point -= 2
            answer = play(f"killed-{first}-{point}", point)
        details = f"seed {SEED}, killed at point {point} of {len(points)}: {points[point]}"

        assert answer["deaths"] == [-signal.SIGKILL], details
        assert answer["code"] == 0, details
        for part in ("files", "messages", "steps"):
            assert answer["result"][part] == undisturbed["result"][part], f"{part} differs; {details}"
        assert not undisturbed["asked"] - answer["asked"], details
        extra = answer["asked"] - undisturbed["asked"]
        assert extra.total() <= answer["result"]["in_flight"], f"asked again: {extra}; {details}"
