"""Flows inside a FastAPI application: requests start them, the application's lifespan drives them.

Run it: uvicorn fastapi_flows:app, after pip install "holdfast[server]". Kill it at any moment and start it again: every
order goes on.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException

from holdfast import Context, HoldfastError, Runtime, decide, flow, get_flow, start_flow

STORE = os.environ.get("ORDERS_DB", "orders.db")


@flow("order")
async def order(ctx: Context, number: int, amount: float) -> str:
    await ctx.step("charge", charge, number, amount)
    if amount > 100:
        ctx.set_status("waits for a person")
        await ctx.approval("large order", show={"number": number, "amount": amount})
    ctx.set_status("waits for the parcel service")
    await ctx.sleep(0.1)  # days, in a real shop: nothing is held in memory meanwhile
    return await ctx.step("ship", ship, number)


async def charge(number: int, amount: float) -> str:
    return f"charge {number}: {amount}"


async def ship(number: int) -> str:
    return f"order {number} is on its way"


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    async with Runtime(STORE, flows=[order], max_parallel=20):
        yield  # on leaving, calls in flight end and are recorded


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{number}")
async def place(number: int, amount: float) -> dict[str, str]:
    handle = await start_flow(order, number, amount, run_id=f"order-{number}", store=STORE)
    return {"run": handle.run_id, "status": await handle.status()}


@app.get("/orders/{number}")
async def look(number: int) -> dict[str, str]:
    try:
        details = await get_flow(f"order-{number}", store=STORE).describe()
        return {"status": details.status, "says": details.status_text}
    except HoldfastError as error:
        raise HTTPException(404, error.message) from error


@app.post("/orders/{number}/approve")
async def approve(number: int) -> dict[str, str]:
    await decide(f"order-{number}", "large order", "approve", store=STORE)
    return {"status": "approved"}
