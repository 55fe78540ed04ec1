"""A run that is killed anywhere and resumed ends as if nothing had happened; only the money may be more."""

import random

import pytest
from tests.crash.engine.conftest import NewWorld
from tests.support.crash.kill_matrix import Matrix, choose
from tests.support.crash.points import IS_TORTURE, SEED
from tests.support.crash.run_outcome import read_outcome
from tests.support.engine_processes import Zygote

KINDS = ("sqlite", "postgres")
SHARE = 12 if IS_TORTURE else 4
"""The points are dealt out to this many tests, so that they can run side by side."""


@pytest.fixture(scope="session")
def matrix(new_world: NewWorld, zygote: Zygote) -> Matrix:
    return Matrix("go_on", "completed", read_outcome, new_world, zygote)


@pytest.mark.parametrize("share", range(SHARE))
@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_killed_at_any_append_or_effect_ends_the_same(kind: str, share: int, matrix: Matrix) -> None:
    points = (await matrix.undisturbed(kind)).points

    for point in choose(len(points), f"engine {kind}", 4)[share::SHARE]:
        await matrix.kill_once(kind, point)


@pytest.mark.parametrize("kind", KINDS if IS_TORTURE else [random.Random(f"{SEED} twice").choice(KINDS)])
async def test_a_run_killed_twice_ends_the_same(kind: str, matrix: Matrix) -> None:
    await matrix.kill_twice(kind, 60 if IS_TORTURE else 1)
