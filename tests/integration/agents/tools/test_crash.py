"""Commands of an agent that is killed anywhere and resumed: run once, their output delivered, the end the same."""

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


@pytest.mark.parametrize("kind", ["execute", "command"])
def test_killed_at_any_append_or_start_of_a_command_it_ends_the_same(player: Player, tmp_path: Path, kind: str) -> None:
    undisturbed = player.play(tmp_path / "undisturbed", model=kind)["result"]
    # In the command's own run there are few points; how often its output was told differs from try to try.
    points = range(len(undisturbed["points"])) if kind == "execute" else range(4)
    chosen = list(points) if IS_TORTURE else random.Random(SEED).sample(points, 4)

    for point in chosen:
        details = f"seed {SEED}, killed at point {point} of {len(points)}: {undisturbed['points'][point]}"
        answer = player.play(tmp_path / f"killed-{point}", point, model=kind)

        assert answer["deaths"] == [-signal.SIGKILL], details
        assert answer["code"] == 0, details
        for part in ("files", "messages", "steps"):
            assert answer["result"][part] == undisturbed[part], f"{part} differs; {details}"


def test_killed_twice_it_ends_the_same(player: Player, tmp_path: Path) -> None:
    undisturbed = player.play(tmp_path / "undisturbed", model="execute")["result"]
    chance = random.Random(SEED)

    for number in range(20 if IS_TORTURE else 1):
        first = chance.randrange(4, len(undisturbed["points"]) - 8)
        answer = player.play(tmp_path / f"killed-{number}", first, chance.randrange(4), model="execute")

        details = f"seed {SEED}, killed at point {first}"
        assert answer["deaths"] == [-signal.SIGKILL] * 2, details
        assert answer["code"] == 0, details
        for part in ("files", "messages", "steps"):
            assert answer["result"][part] == undisturbed[part], f"{part} differs; {details}"
