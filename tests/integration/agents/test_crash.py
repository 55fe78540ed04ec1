"""A phase that is killed anywhere and resumed ends as if nothing had happened."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
SEED = int(os.environ.get("HOLDFAST_SEED", "1"))
IS_TORTURE = os.environ.get("HOLDFAST_TORTURE") == "1"
MODELS = ["rehearsal-1:delegate", "rehearsal-1:garbage-tools"]


class Server:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def play(self, folder: Path, model: str, *dies_at: int) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"folder": str(folder), "model": model, "dies_at": dies_at}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.agents.crash_server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    yield Server(process)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.wait()
    process.stdout.close()


@pytest.mark.timeout(3600 if IS_TORTURE else 120)
@pytest.mark.parametrize("model", MODELS)
def test_a_phase_killed_at_any_append_or_effect_ends_the_same(server: Server, tmp_path: Path, model: str) -> None:
    undisturbed = server.play(tmp_path / "undisturbed", model)["result"]
    points = range(len(undisturbed["points"]))
    chosen = list(points) if IS_TORTURE else random.Random(SEED).sample(points, 3)

    for point in chosen:
        told = f"seed {SEED}, killed at point {point} of {len(points)}: {undisturbed['points'][point]}"
        answer = server.play(tmp_path / f"killed-{point}", model, point)

        assert answer["deaths"] == [-signal.SIGKILL], told
        assert answer["code"] == 0, told
        _assert_same(answer["result"], undisturbed, told)


@pytest.mark.timeout(3600 if IS_TORTURE else 120)
def test_a_phase_killed_twice_ends_the_same(server: Server, tmp_path: Path) -> None:
    undisturbed = server.play(tmp_path / "undisturbed", MODELS[0])["result"]
    chance = random.Random(SEED)

    for number in range(20 if IS_TORTURE else 2):
        first = chance.randrange(4, len(undisturbed["points"]) - 8)
        answer = server.play(tmp_path / f"killed-{number}", MODELS[0], first, chance.randrange(4))

        told = f"seed {SEED}, killed at point {first}"
        assert answer["deaths"] == [-signal.SIGKILL] * 2, told
        assert answer["code"] == 0, told
        _assert_same(answer["result"], undisturbed, told)


def _assert_same(result: dict[str, Any], undisturbed: dict[str, Any], told: str) -> None:
    for part in ("files", "artifact", "messages", "steps"):
        assert result[part] == undisturbed[part], f"{part} differs; {told}"
    # Only a call that was in flight is made again.
    assert undisturbed["calls"] <= result["calls"] <= undisturbed["calls"] + result["in_flight"], told
