"""What goes wrong, in an order that a seed decides: processes die, stop and lose the network, and Postgres crashes."""

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Sequence

from tests.support.chaos.machines import ChaosMachine, Fleet
from tests.support.chaos.servers import ServerPair, SingleServer

LONGER_THAN_A_LEASE_S = 8.0
_OF_ALL = ("crash", "fail_over", "serve_again")
Fault = Callable[[], Awaitable[None]]


class Storm:
    """Faults of a fleet. What is a matter of chance is the machine, the length and the moment."""

    def __init__(self, fleet: Fleet, servers: SingleServer | ServerPair, chance: random.Random) -> None:
        self.log: list[str] = []
        self._fleet = fleet
        self._servers = servers
        self._chance = chance
        self._lasting: set[asyncio.Task[None]] = set()
        self._in_trouble: set[str] = set()
        self._began = time.monotonic()

    async def blow(self, names: Sequence[str], *, gap_s: tuple[float, float]) -> None:
        """Do these, one after the other; those that last go on beside the next ones."""
        for name in names:
            await asyncio.sleep(self._chance.uniform(*gap_s))
            await self._begin(name)
        await self.settle()

    async def blow_for(self, seconds: float, names: Sequence[str], *, gap_s: tuple[float, float]) -> None:
        """Do one of these every few seconds, for so long."""
        while time.monotonic() - self._began < seconds:
            await asyncio.sleep(self._chance.uniform(*gap_s))
            await self._begin(self._chance.choice(names))
        await self.settle()

    async def settle(self) -> None:
        await asyncio.gather(*self._lasting)

    async def keep_running(self) -> None:
        """Start workers again that have ended by themselves, as a service manager does."""
        while True:
            for machine in self._fleet.machines:
                if machine.name not in self._in_trouble and await asyncio.to_thread(lambda m=machine: m.has_ended):  # type: ignore[misc]
                    self._note(f"{machine.name} is started again")
                    await asyncio.to_thread(machine.kill)
                    await asyncio.to_thread(machine.start)
            await asyncio.sleep(1)

    async def _begin(self, name: str) -> None:
        while name not in _OF_ALL and len(self._list_free()) < 2:  # there is always one that works
            await asyncio.sleep(0.1)
        task = asyncio.create_task(getattr(self, f"_{name}")())
        self._lasting.add(task)
        task.add_done_callback(self._lasting.discard)
        await asyncio.sleep(0)  # it chooses its machine
        if name in ("crash", "fail_over"):
            await task

    def _note(self, what: str) -> None:
        self.log.append(f"{time.monotonic() - self._began:.1f} s: {what}")
        if os.environ.get("HOLDFAST_TEST_CHAOS_MINUTES"):
            print(self.log[-1], flush=True)

    def _list_free(self) -> list[ChaosMachine]:
        return [machine for machine in self._fleet.machines if machine.name not in self._in_trouble]

    def _pick(self) -> ChaosMachine:
        machine = self._chance.choice(self._list_free())
        self._in_trouble.add(machine.name)
        return machine

    async def _kill(self) -> None:
        await self._end("killed", ChaosMachine.kill)

    async def _destroy(self) -> None:
        await self._end("destroyed", ChaosMachine.destroy)

    async def _end(self, word: str, end: Callable[[ChaosMachine], None]) -> None:
        machine = self._pick()
        self._note(f"{machine.name} is {word}")
        try:
            await asyncio.to_thread(end, machine)
            await asyncio.sleep(self._chance.uniform(0.2, LONGER_THAN_A_LEASE_S))
            await asyncio.to_thread(machine.start)
        finally:
            self._in_trouble.discard(machine.name)

    async def _stop(self) -> None:
        await self._freeze("stopped", ChaosMachine.pause, ChaosMachine.go_on)

    async def _cut(self) -> None:
        await self._freeze("cut off", ChaosMachine.cut_off, ChaosMachine.join)

    async def _freeze(
        self, word: str, begin: Callable[[ChaosMachine], None], end: Callable[[ChaosMachine], None]
    ) -> None:
        machine = self._pick()
        lasts_s = LONGER_THAN_A_LEASE_S + self._chance.uniform(0, 4)
        self._note(f"{machine.name} is {word} for {lasts_s:.1f} s")
        try:
            begin(machine)
            await asyncio.sleep(lasts_s)
            end(machine)
        finally:
            self._in_trouble.discard(machine.name)

    async def _reset(self) -> None:
        """All connections of a machine break at once, and new ones can be had."""
        machine = self._pick()
        self._note(f"the connections of {machine.name} break")
        machine.wire.cut()
        self._in_trouble.discard(machine.name)

    async def _crash(self) -> None:
        self._note("Postgres crashes")
        await asyncio.to_thread(self._servers.crash)
        self._note("Postgres is back")

    async def _fail_over(self) -> None:
        """The primary is lost for good. Who was connected to it finds the other one; a new standby follows later."""
        assert isinstance(self._servers, ServerPair)
        self._note("the primary is lost")
        await asyncio.to_thread(self._servers.fail_over)
        for machine in self._fleet.machines:
            machine.wire.host = self._servers.primary
        self._note("the standby has taken its place")
        await asyncio.sleep(self._chance.uniform(0, 4))
        await asyncio.to_thread(self._servers.restore_standby)
        self._note("there is a standby again")

    async def _serve_again(self) -> None:
        self._note("the server is killed")
        await asyncio.to_thread(self._fleet.kill_server)
        await asyncio.to_thread(self._fleet.start_server)
