"""The flows that the workers of the bench drive."""

import asyncio

from benchmarks.measure import payload
from holdfast import Context, flow


@flow("one_step")
async def one_step(ctx: Context, number: int) -> None:
    await ctx.step("step", payload, number)


@flow("many_steps")
async def many_steps(ctx: Context, steps: int) -> None:
    """Work that can be interrupted: a step every twentieth of a second."""
    for number in range(steps):
        await ctx.step(f"step {number}", payload, number)
        await asyncio.sleep(0.05)


@flow("many_quick_steps")
async def many_quick_steps(ctx: Context, steps: int) -> None:
    for number in range(steps):
        await ctx.step(f"step {number}", payload, number)
