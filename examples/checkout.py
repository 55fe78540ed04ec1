"""A shop's checkout, as DBOS's users know it: reserve, wait for the payment or release, send the parcel.

Run it: python checkout.py. It starts an order, pays for it and waits for the parcel; kill it at any moment and start it
again: the order goes on.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from holdfast import Context, EventTimeout, Runtime, flow, send_event, start_flow, step_key

PAY_WITHIN = timedelta(minutes=10)
ledger: list[str] = []
"""What the shop, its bank and its warehouse were told: stands for their databases."""


@dataclass
class Order:
    number: str
    item: str
    price: Decimal


class SoldOut(Exception):
    """There is none left: no order is made of it."""


def create_order(item: str, cents: int) -> Order:
    number = step_key()  # the same at every try: the bank and the shop know a second one as the first
    ledger.append(f"order {number}")
    return Order(number, item, Decimal(cents) / 100)


def reserve(item: str) -> None:
    if item == "unicorn":
        raise SoldOut(item)
    ledger.append(f"reserve {item}")


def release(item: str) -> None:
    ledger.append(f"release {item}")


def book_payment(order: Order, reference: str) -> str:
    ledger.append(f"book {order.price} by {reference}")
    return reference


def move_parcel(number: str, stage: str) -> None:
    ledger.append(f"{stage} {number}")


class NotPaid(Exception):
    """The customer has not paid in time, or could not."""


@flow("checkout")
async def checkout(ctx: Context, item: str, cents: int) -> str:
    order = await ctx.step("create order", create_order, item, cents)
    try:
        await ctx.step.options(retries=3, no_retry_on=SoldOut)("reserve", reserve, item)
        async with ctx.compensate(release, item):
            ctx.set_status("waits for the payment")
            ctx.emit({"pay": f"/pay/{ctx.run_id}"})
            try:
                reference = await ctx.wait_for("payment", timeout=PAY_WITHIN)
            except EventTimeout:
                raise NotPaid("too late") from None
            if not isinstance(reference, str):
                raise NotPaid("declined")
            await ctx.step("book payment", book_payment, order, reference, retries=5)
    except (SoldOut, NotPaid) as error:
        return f"cancelled: {type(error).__name__}"
    ctx.set_status("is sent")
    await ctx.run_flow(dispatch, order.number)
    return "delivered"


@flow("dispatch")
async def dispatch(ctx: Context, number: str) -> None:
    for stage in ("pack", "send", "deliver"):
        await ctx.step(stage, move_parcel, number, stage)
        await ctx.sleep(timedelta(seconds=0.2))  # days, in a real shop


async def main() -> None:
    async with Runtime("checkout.db", flows=[checkout, dispatch]):
        handle = await start_flow(checkout, "lamp", 1990, run_id="order-1", store="checkout.db")
        if await handle.status() != "completed":
            await send_event("order-1", "payment", "card 4711", dedup_id="payment-1", store="checkout.db")
        print(await handle.result())


if __name__ == "__main__":
    asyncio.run(main())
