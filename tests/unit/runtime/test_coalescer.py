"""Calls made as one: whoever waits has an answer, whatever becomes of those who do not wait any more."""

import asyncio
import logging

import pytest

from holdfast.runtime.coalescer import Coalescer


async def test_what_cannot_be_given_back_keeps_nobody_from_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    may_answer = asyncio.Event()

    async def claim(items: list[str]) -> list[str]:
        await may_answer.wait()
        return [f"claim of {item}" for item in items]

    async def release(claimed: str) -> None:
        raise OSError(f"{claimed} cannot be given back")

    claim_one = Coalescer(claim, release)
    cancelled, waiting = (asyncio.create_task(claim_one(run)) for run in ("first", "second"))
    await asyncio.sleep(0)
    cancelled.cancel()
    may_answer.set()

    with caplog.at_level(logging.WARNING):
        assert await waiting == "claim of second"
        await claim_one.settle()
    assert [record.exc_info[1].args for record in caplog.records if record.exc_info and record.exc_info[1]] == [
        ("claim of first cannot be given back",)
    ]
    assert await claim_one("third") == "claim of third"
