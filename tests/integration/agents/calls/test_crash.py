"""A phase that is killed anywhere and resumed ends as if nothing had happened."""

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.agents.killed_phase import Player, starting_player

SEED = int(os.environ.get("HOLDFAST_SEED", "1"))
IS_TORTURE = os.environ.get("HOLDFAST_TORTURE") == "1"
FEWER = 4
"""Appends of parallel calls may share a commit, so a play may have some points fewer than another."""
MODELS = ["rehearsal-1:delegate", "rehearsal-1:garbage-tools"]


@pytest.fixture(scope="module")
def player() -> Iterator[Player]:
    with starting_player("phase_server") as player:
        yield player


@pytest.mark.parametrize("model", MODELS)
def test_a_phase_killed_at_any_append_or_effect_ends_the_same(player: Player, tmp_path: Path, model: str) -> None:
    undisturbed = player.play(tmp_path / "undisturbed", model=model)["result"]
    names = undisturbed["points"]
    certain = len(names) - FEWER
    chosen = list(range(len(names))) if IS_TORTURE else random.Random(SEED).sample(range(certain), 3)

    for point in chosen:
        details = f"seed {SEED}, killed at point {point} of {len(names)}: {names[point]}"
        answer = player.play(tmp_path / f"killed-{point}", point, model=model)

        is_killed = answer["deaths"] == [-signal.SIGKILL]
        assert is_killed or (point >= certain and answer["deaths"] == []), details
        assert answer["code"] == 0, details
        _assert_same(answer["result"], undisturbed, details)


def test_a_phase_killed_twice_ends_the_same(player: Player, tmp_path: Path) -> None:
    undisturbed = player.play(tmp_path / "undisturbed", model=MODELS[0])["result"]
    chance = random.Random(SEED)

    for number in range(20 if IS_TORTURE else 2):
        first = chance.randrange(4, len(undisturbed["points"]) - 8)
        answer = player.play(tmp_path / f"killed-{number}", first, chance.randrange(4), model=MODELS[0])

        details = f"seed {SEED}, killed at point {first}"
        assert answer["deaths"] == [-signal.SIGKILL] * 2, details
        assert answer["code"] == 0, details
        _assert_same(answer["result"], undisturbed, details)


def _assert_same(result: dict[str, Any], undisturbed: dict[str, Any], details: str) -> None:
    for part in ("files", "artifact", "messages", "steps"):
        assert result[part] == undisturbed[part], f"{part} differs; {details}"
    # Only a call that was in flight is made again.
    assert undisturbed["calls"] <= result["calls"] <= undisturbed["calls"] + result["in_flight"], details
