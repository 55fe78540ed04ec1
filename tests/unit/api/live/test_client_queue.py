"""A client's place in a live stream: what it is told, in which pieces, and what happens to one that is too slow."""

import asyncio

from holdfast.api.live.client_queue import ClientQueue, join


async def test_everything_told_since_is_taken_at_once() -> None:
    queue: ClientQueue[int] = ClientQueue(10, idle_s=60)
    for number in range(3):
        queue.put(number)

    taken = await queue.take()
    waiting = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    queue.put(3)
    queue.put(4)

    assert taken == [0, 1, 2]
    assert await waiting == [3, 4]
    queue.close()


async def test_who_is_too_slow_hears_what_it_had_and_nothing_after_a_gap() -> None:
    queue: ClientQueue[int] = ClientQueue(2, idle_s=60)
    for number in range(3):
        queue.put(number)
    taken = await queue.take()
    queue.put(3)  # there is room again, but 2 was not told

    assert queue.is_cut_off
    assert (taken, await queue.take(), await queue.take()) == ([0, 1], None, None)
    queue.close()


async def test_silence_is_told_again_and_again_and_not_right_after_a_word() -> None:
    loop = asyncio.get_running_loop()
    queue: ClientQueue[int] = ClientQueue(10, idle_s=0.05)
    started_at = loop.time()

    first = await queue.take()
    queue.put(1)
    word = await queue.take()
    spoke_at = loop.time()
    second = await queue.take()

    assert (first, word, second) == ([], [1], [])
    assert loop.time() - spoke_at >= 0.05 - 0.001  # the clock's own grain
    assert spoke_at - started_at >= 0.05 - 0.001
    queue.close()


async def test_one_that_is_let_go_while_it_waits_is_woken() -> None:
    queue: ClientQueue[int] = ClientQueue(10, idle_s=60)
    waiting = asyncio.create_task(queue.take())
    await asyncio.sleep(0)

    queue.cut_off()

    assert await waiting is None
    queue.close()


def test_pieces_are_joined_up_to_what_a_connection_takes_well() -> None:
    small, large = b"x" * 100, b"y" * 40_000

    assert list(join([])) == []
    assert list(join([small] * 3)) == [small * 3]
    assert list(join([large] * 5)) == [large * 2, large * 2, large]
    assert next(join([small])) is small
