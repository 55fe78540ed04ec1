"""A known coding agent dies once, and holdfast is killed anywhere around it: it is continued once, all is the same."""

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.agents.calls.test_crash import IS_TORTURE, SEED
from tests.support.agents.killed_phase import Player, starting_player


@pytest.fixture(scope="module")
def player() -> Iterator[Player]:
    with starting_player("command_phase_server") as player:
        yield player


def test_killed_at_any_point_the_agent_is_continued_once(player: Player, tmp_path: Path) -> None:
    undisturbed = player.play(tmp_path / "undisturbed", model="coding agent")["result"]
    assert undisturbed["files"]["starts.txt"] == "start\nstart again\n"
    names = undisturbed["points"]
    assert "before remove_spooled" in names, names
    # How many events the output makes differs from try to try, so the last points may not come.
    points = range(len(names) - 4)
    between = [number for number in points if "session" in names[number] or "spooled" in names[number]]
    chosen = list(points) if IS_TORTURE else [*between[:3], *random.Random(SEED).sample(points, 3)]

    for number, point in enumerate(chosen):
        details = f"seed {SEED}, killed at point {point} of {len(names)}: {names[point]}"
        answer = player.play(tmp_path / f"killed-{number}", point, model="coding agent")

        assert answer["deaths"] == [-signal.SIGKILL], details
        assert answer["code"] == 0, details
        for part in ("files", "messages", "steps"):
            assert answer["result"][part] == undisturbed[part], f"{part} differs; {details}"
