"""A subscription, as Temporal's users write it: a trial, a charge each month, signals that change or end it, a status.

Run it: python subscription.py. A month is a fifth of a second there.
"""

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from holdfast import Context, EventTimeout, Runtime, flow, send_event, start_flow, step_key

charges: list[str] = []
"""What the payment service has booked, by idempotency key."""


class CardDeclined(Exception):
    """Trying the same card again is of no use."""


@dataclass
class Receipt:
    cents: int
    key: str


def charge(customer: str, cents: int) -> Receipt:
    if cents > 10_000:
        raise CardDeclined(customer)
    charges.append(f"{customer} {cents}")
    return Receipt(cents, step_key())


def send_mail(customer: str, text: str) -> None:
    charges.append(f"mail to {customer}: {text}")


@flow("subscription")
async def subscription(ctx: Context, customer: str, cents: int, months: int, month_s: float) -> int:
    """Return how much was paid in all."""
    paid = 0
    for month in range(months):
        ctx.set_status(f"month {month + 1} of {months}, {cents} cents")
        until = await ctx.now() + timedelta(seconds=month_s)
        changes = await wait_for_changes(ctx, until)
        if any(change["kind"] == "cancel" for change in changes):
            await ctx.step("goodbye", send_mail, customer, "goodbye")
            return paid
        cents = next((int(change["cents"]) for change in reversed(changes) if change["kind"] == "price"), cents)
        try:
            receipt = await ctx.step.options(retries=5, no_retry_on=CardDeclined, timeout=30)(
                "charge", charge, customer, cents
            )
        except CardDeclined:
            await ctx.step("declined", send_mail, customer, "your card was declined")
            return paid
        paid += receipt.cents
    return paid


async def wait_for_changes(ctx: Context, until: datetime) -> list[dict[str, Any]]:
    """Collect what was sent until the month ends, or the end of the subscription at once."""
    changes: list[dict[str, Any]] = []
    while True:
        try:
            change = await ctx.wait_for("change", timeout=until - await ctx.now())
        except EventTimeout:
            return changes
        changes.append(change)
        if change["kind"] == "cancel":
            return changes


async def main() -> None:
    store = "subscription.db"
    async with Runtime(store, flows=[subscription]):
        handle = await start_flow(subscription, "c-1", 900, 12, 0.2, run_id="c-1", store=store)
        if await handle.status() != "completed":
            await send_event("c-1", "change", {"kind": "price", "cents": 1200}, dedup_id="price-1", store=store)
            await asyncio.sleep(0.5)
            await send_event("c-1", "change", {"kind": "cancel"}, dedup_id="cancel-1", store=store)
        print("paid", await handle.result())


if __name__ == "__main__":
    asyncio.run(main())
