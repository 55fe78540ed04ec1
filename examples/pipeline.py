"""A data pipeline, as Prefect's users write it: one task per source, a few at a time, retries, a report.

Run it: python pipeline.py. The tasks are plain functions and may block: beside others they run in threads.
"""

import asyncio
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from holdfast import Context, flow, run_flow

calls: list[str] = []
failures = {"south": 1}
"""How often a source will still fail."""


@dataclass(frozen=True)
class Sale:
    day: date
    amount: Decimal


@dataclass
class Report:
    total: Decimal
    by_source: dict[str, Decimal]
    missing: list[str]


class NoSuchSource(Exception):
    """A source that is not there will not come by trying again."""


def extract(source: str) -> list[Sale]:
    calls.append(f"extract {source}")
    if source == "atlantis":
        raise NoSuchSource(source)
    if failures.get(source, 0):
        failures[source] -= 1
        raise ConnectionError(source)
    return [Sale(date(2026, 1, day), Decimal(len(source)) * day) for day in (1, 2, 3)]


def transform(sales: list[Sale]) -> Decimal:
    return sum((sale.amount for sale in sales), Decimal(0))


def load(report: Report) -> str:
    calls.append("load")
    return f"{report.total} from {len(report.by_source)} sources, {len(report.missing)} missing"


@flow("pipeline")
async def pipeline(ctx: Context, sources: list[str]) -> str:
    found = await ctx.gather(*(read_source(ctx, source) for source in sources), limit=4, return_exceptions=True)
    totals = {source: total for source, total in zip(sources, found, strict=True) if isinstance(total, Decimal)}
    missing = [source for source in sources if source not in totals]
    ctx.emit({"missing": missing})
    return await ctx.step("load", load, Report(sum(totals.values(), Decimal(0)), totals, missing))


async def read_source(ctx: Context, source: str) -> Decimal:
    sales = await ctx.step.options(retries=2, backoff_s=0.05, no_retry_on=NoSuchSource)("extract", extract, source)
    return await ctx.step("transform", transform, sales)


if __name__ == "__main__":
    print(asyncio.run(run_flow(pipeline, ["north", "south", "atlantis"], run_id="sales-1", store="pipeline.db")))
