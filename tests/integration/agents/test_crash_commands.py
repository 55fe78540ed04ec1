"""Commands of an agent that is killed anywhere and resumed: run once, their output delivered, the end the same."""

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.agents.test_crash import IS_TORTURE, ROOT, SEED, Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.agents.crash_shell_server"],
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
@pytest.mark.parametrize("kind", ["execute", "command"])
def test_killed_at_any_append_or_start_of_a_command_it_ends_the_same(server: Server, tmp_path: Path, kind: str) -> None:
    undisturbed = server.play(tmp_path / "undisturbed", kind)["result"]
    # In the command's own run there are few points; how often its output was told differs from try to try.
    points = range(len(undisturbed["points"])) if kind == "execute" else range(4)
    chosen = list(points) if IS_TORTURE else random.Random(SEED).sample(points, 4)

    for point in chosen:
        told = f"seed {SEED}, killed at point {point} of {len(points)}: {undisturbed['points'][point]}"
        answer = server.play(tmp_path / f"killed-{point}", kind, point)

        assert answer["deaths"] == [-signal.SIGKILL], told
        assert answer["code"] == 0, told
        for part in ("files", "messages", "steps"):
            assert answer["result"][part] == undisturbed[part], f"{part} differs; {told}"


@pytest.mark.timeout(3600 if IS_TORTURE else 120)
def test_killed_twice_it_ends_the_same(server: Server, tmp_path: Path) -> None:
    undisturbed = server.play(tmp_path / "undisturbed", "execute")["result"]
    chance = random.Random(SEED)

    for number in range(20 if IS_TORTURE else 1):
        first = chance.randrange(4, len(undisturbed["points"]) - 8)
        answer = server.play(tmp_path / f"killed-{number}", "execute", first, chance.randrange(4))

        told = f"seed {SEED}, killed at point {first}"
        assert answer["deaths"] == [-signal.SIGKILL] * 2, told
        assert answer["code"] == 0, told
        for part in ("files", "messages", "steps"):
            assert answer["result"][part] == undisturbed[part], f"{part} differs; {told}"
