"""A deadline and a cancellation hold, whatever the work does with them."""

import asyncio
import contextlib

import pytest

from holdfast.concurrency import Deadline, DeadlinePassed, ExclusiveGroups, cancel_within


class Stubborn:
    """Work that loses every cancellation, as `asyncio.wait_for` of Python 3.11 loses one; it ends when it is let go."""

    def __init__(self) -> None:
        self.cancelled = 0
        self.may_end = asyncio.Event()
        self.is_begun = asyncio.Event()

    async def work(self) -> str:
        self.is_begun.set()
        while not self.may_end.is_set():
            try:
                await self.may_end.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
        return "done"


async def test_work_in_time_returns_what_it_returns() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    assert await Deadline(60).run(work()) == 7


async def test_work_that_fails_raises_what_it_raised() -> None:
    async def work() -> None:
        raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        await Deadline(60).run(work())


async def test_a_deadline_holds_for_work_that_ignores_it() -> None:
    stubborn = Stubborn()

    with pytest.raises(DeadlinePassed, match="The model took longer than"):
        await Deadline(0.05, what="The model").run(stubborn.work())

    assert stubborn.cancelled >= 1
    stubborn.may_end.set()


async def test_silence_is_counted_from_the_last_sign_of_life() -> None:
    deadline = Deadline(3600, 0.2, what="The model")

    async def work() -> None:
        for _ in range(5):
            deadline.note_progress()
            await asyncio.sleep(0.01)
        await asyncio.Event().wait()

    with pytest.raises(DeadlinePassed, match="The model was silent"):
        await deadline.run(work())


async def test_whoever_is_cancelled_does_not_wait_for_work_that_ignores_it() -> None:
    stubborn = Stubborn()
    waiting = asyncio.ensure_future(Deadline(3600).run(stubborn.work()))
    await stubborn.is_begun.wait()

    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert stubborn.cancelled >= 1
    stubborn.may_end.set()


async def test_a_cancellation_that_was_lost_is_sent_again() -> None:
    lost = []

    async def loses_one() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        lost.append(1)
        await asyncio.Event().wait()

    task = asyncio.ensure_future(loses_one())
    await asyncio.sleep(0)

    assert await cancel_within((task,), 60, again_s=0.01)
    assert task.cancelled()
    assert lost == [1]


async def test_groups_run_side_by_side_within_and_never_with_each_other() -> None:
    groups, order = ExclusiveGroups(), list[str]()
    gates = {name: asyncio.Event() for name in ("a1", "a2", "b1", "a3")}

    async def work(name: str) -> None:
        async with groups.running(name[0]):
            order.append(name)
            await gates[name].wait()

    tasks = {name: asyncio.create_task(work(name)) for name in gates}
    await asyncio.sleep(0)
    assert order == ["a1", "a2"]
    gates["a1"].set()
    await tasks["a1"]
    assert order == ["a1", "a2"], "b waits for all of a, and the third of a for b, which came first"
    gates["a2"].set()
    await tasks["a2"]
    gates["b1"].set()
    await tasks["b1"]
    gates["a3"].set()
    await tasks["a3"]

    assert order == ["a1", "a2", "b1", "a3"]


@pytest.mark.parametrize("is_its_turn", [False, True])
async def test_whoever_is_cancelled_in_the_queue_holds_nobody_up(is_its_turn: bool) -> None:
    groups, gate = ExclusiveGroups(), asyncio.Event()

    async def work(group: str, may_end: asyncio.Event) -> None:
        async with groups.running(group):
            await may_end.wait()

    first = asyncio.create_task(work("a", gate))
    await asyncio.sleep(0)
    second = asyncio.create_task(work("b", asyncio.Event()))
    third = asyncio.create_task(work("c", gate))
    await asyncio.sleep(0)
    if is_its_turn:
        gate.set()
        await first
    second.cancel()
    gate.set()

    await asyncio.gather(first, third)
    with pytest.raises(asyncio.CancelledError):
        await second
