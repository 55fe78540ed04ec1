"""A run that is killed anywhere and resumed ends as if nothing had happened; only the money may be more."""

import random
from typing import Any

import pytest
from tests.crash.engine.conftest import NewWorld
from tests.crash.engine.outcome import read_money, read_outcome
from tests.crash.points import IS_TORTURE, SEED
from tests.engine_processes import Zygote

KINDS = ("sqlite", "postgres")
SHARE = 12
"""The points are dealt out to this many tests, so that they can run side by side."""

pytestmark = pytest.mark.timeout(7200 if IS_TORTURE else 120)


@pytest.fixture(scope="session")
def undisturbed(new_world: NewWorld, zygote: Zygote) -> "dict[str, tuple[dict[str, Any], list[str], int]]":
    """Filled by `_reference`, one kind of store at a time."""
    return {}


async def _reference(kind: str, known: dict[str, Any], new_world: NewWorld, zygote: Zygote) -> Any:
    if kind not in known:
        world = new_world(kind)
        told = zygote.start(world, "go_on", None).wait()
        assert told is not None
        assert told["result"]["state"] == "completed"
        known[kind] = (await read_outcome(world), told["result"]["points"], (await read_money(world))[0])
        await world.close()
    return known[kind]


def _choose(count: int, what: str, how_many: int) -> list[int]:
    chance = random.Random(f"{SEED} {what}")
    return list(range(count)) if IS_TORTURE else sorted(chance.sample(range(count), how_many))


@pytest.mark.parametrize("share", range(SHARE if IS_TORTURE else 4))
@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_killed_at_any_append_or_effect_ends_the_same(
    kind: str, share: int, new_world: NewWorld, zygote: Zygote, undisturbed: dict[str, Any]
) -> None:
    wanted, points, settled = await _reference(kind, undisturbed, new_world, zygote)
    chosen = _choose(len(points), f"engine {kind}", 4)[share :: SHARE if IS_TORTURE else 4]

    for point in chosen:
        await _kill_and_compare(kind, [point], f"{points[point]} (point {point})", wanted, settled, new_world, zygote)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_killed_twice_ends_the_same(
    kind: str, new_world: NewWorld, zygote: Zygote, undisturbed: dict[str, Any]
) -> None:
    wanted, points, settled = await _reference(kind, undisturbed, new_world, zygote)
    chance = random.Random(f"{SEED} twice {kind}")

    for _ in range(60 if IS_TORTURE else 1):
        first = chance.randrange(len(points) - 1)
        second = chance.randrange(max(1, len(points) - first))
        told = f"{points[first]} (point {first}), then {second} points later"
        await _kill_and_compare(kind, [first, second], told, wanted, settled, new_world, zygote)


async def _kill_and_compare(
    kind: str, dies_at: list[int], told: str, wanted: Any, settled: int, new_world: NewWorld, zygote: Zygote
) -> None:
    world = new_world(kind)
    said = f"seed {SEED}, {kind}, killed at {told}"
    deaths = [zygote.start(world, "go_on", point).wait() for point in dies_at]

    ended = zygote.start(world, "go_on", None).wait()
    outcome = await read_outcome(world)
    money = await read_money(world)
    await world.close()

    assert ended is not None
    assert ended["result"]["state"] == "completed", said
    # Side by side, lanes may share an append, so that a late point is not reached; then nothing was disturbed.
    assert deaths.count(None) >= len(dies_at) - 1, said
    for part in wanted:
        assert _difference(outcome[part], wanted[part]) is None, f"{part} differs; {said}"
    assert money[0] == settled, said
    assert money[1] >= 0


def _difference(found: Any, wanted: Any) -> Any:
    """The first thing that differs, small enough to read; `None` if nothing does."""
    if found == wanted:
        return None
    if isinstance(found, dict) and isinstance(wanted, dict):
        key = next(key for key in {**wanted, **found} if found.get(key) != wanted.get(key))
        return key, _difference(found.get(key), wanted.get(key))
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        return next(_difference(one, other) for one, other in zip(found, wanted, strict=True) if one != other)
    return found, wanted
