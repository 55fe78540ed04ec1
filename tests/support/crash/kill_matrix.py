"""Kills a job at chosen points, lets it end, and compares what it has left with what an undisturbed one leaves."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.crash.engine.conftest import NewWorld
from tests.support.crash.points import IS_TORTURE, SEED
from tests.support.crash.run_outcome import read_money
from tests.support.engine_processes import Zygote
from tests.support.engine_world import World


class Undisturbed(NamedTuple):
    outcome: dict[str, Any]
    points: list[str]
    settled: int


@dataclass
class Matrix:
    """One job, which goes on until all is done and tells its state and the points it has passed.

    Its last argument is the point at which it dies. `read` gives everything that must be the same.
    """

    job: str
    state: str
    """The one it ends in."""
    read: Callable[[World], Awaitable[dict[str, Any]]]
    new_world: NewWorld
    zygote: Zygote
    args: tuple[Any, ...] = ()
    _known: dict[str, Undisturbed] = field(default_factory=dict)

    async def undisturbed(self, kind: str) -> Undisturbed:
        if kind not in self._known:
            world = self.new_world(kind)
            answer = self._play(world, None)
            assert answer is not None
            assert answer["result"]["state"] == self.state
            points: list[str] = answer["result"]["points"]
            self._known[kind] = Undisturbed(await self.read(world), points, (await read_money(world))[0])
            await world.close()
        return self._known[kind]

    async def kill_once(self, kind: str, point: int) -> None:
        name = (await self.undisturbed(kind)).points[point]
        await self._kill_and_compare(kind, [point], f"{name} (point {point})")

    async def kill_twice(self, kind: str, times: int) -> None:
        """Kill it anywhere, and the one that goes on somewhere later; so many pairs of points, by chance."""
        points = (await self.undisturbed(kind)).points
        chance = random.Random(f"{SEED} {self.job} twice {kind}")
        for _ in range(times):
            first = chance.randrange(len(points) - 1)
            second = chance.randrange(max(1, len(points) - first))
            place = f"{points[first]} (point {first}), then {second} points later"
            await self._kill_and_compare(kind, [first, second], place)

    async def _kill_and_compare(self, kind: str, dies_at: list[int], place: str) -> None:
        reference = await self.undisturbed(kind)
        world = self.new_world(kind)
        said = f"seed {SEED}, {kind}, killed at {place}"
        deaths = [self._play(world, point) for point in dies_at]

        ended = self._play(world, None)
        outcome = await self.read(world)
        money = await read_money(world)
        await world.close()

        assert ended is not None
        assert ended["result"]["state"] == self.state, said
        # Side by side, lanes may share an append, so that a late point is not reached; the run is over then.
        assert deaths[0] is None or dies_at[0] > 0.75 * len(reference.points), said
        for part in reference.outcome:
            differs = _difference(outcome[part], reference.outcome[part])
            assert differs is None, f"{part} differs: {differs}; {said}"
        assert money[0] == reference.settled, said
        assert money[1] >= 0

    def _play(self, world: World, dies_at: int | None) -> dict[str, Any] | None:
        return self.zygote.start(world, self.job, *self.args, dies_at).wait()


def choose(count: int, what: str, how_many: int) -> list[int]:
    """Some of so many points, or all of them in `make torture`."""
    chance = random.Random(f"{SEED} {what}")
    return list(range(count)) if IS_TORTURE else sorted(chance.sample(range(count), how_many))


def _difference(found: Any, reference: Any) -> Any:
    """The first thing that differs, small enough to read; `None` if nothing does."""
    if found == reference:
        return None
    if isinstance(found, dict) and isinstance(reference, dict):
        key = next(key for key in {**reference, **found} if found.get(key) != reference.get(key))
        return key, _difference(found.get(key), reference.get(key))
    if isinstance(found, list) and isinstance(reference, list) and len(found) == len(reference):
        return next(_difference(one, other) for one, other in zip(found, reference, strict=True) if one != other)
    return found, reference
