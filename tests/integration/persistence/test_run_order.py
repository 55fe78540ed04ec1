"""The list of runs in its orders, on both databases: pages without gaps and without repeats."""

import pytest
from tests.integration.persistence.test_statistics import add, at, database, run

from holdfast.api.serialize import to_cursor
from holdfast.api.server.run_page import from_cursor
from holdfast.errors import CursorInvalid
from holdfast.persistence.db import Database
from holdfast.persistence.listings import RunFilter, list_page
from holdfast.persistence.models import LedgerRow
from holdfast.persistence.run_order import ListOrder, ListPlace

EXPECTED = {
    ListOrder.NEWEST: ["r5", "r4", "r3", "r2", "r1"],
    ListOrder.OLDEST: ["r1", "r2", "r3", "r4", "r5"],
    ListOrder.COSTLIEST: ["r2", "r4", "r3", "r5", "r1"],  # play money decides only between runs that cost nothing
    ListOrder.CHEAPEST: ["r1", "r5", "r3", "r4", "r2"],
    ListOrder.LONGEST: ["r3", "r5", "r4", "r2", "r1"],
    ListOrder.SHORTEST: ["r1", "r2", "r4", "r5", "r3"],
}


async def page_through(db: Database, order: ListOrder) -> list[str]:
    place, seen = ListPlace(order, at(30)), []
    while True:
        found = await list_page(db, RunFilter(), limit=3, place=place)
        seen += [each.run.id for each in found[:2]]
        if len(found) < 3:
            return seen
        cursor = to_cursor(order.value, place.at, "", "", *found[1].place)
        place = from_cursor(cursor, order).workflow


async def test_every_order_is_paged_without_gaps_and_repeats(database_url: str) -> None:
    async with database(database_url) as db:
        await add(
            db,
            run(1),
            run(2),
            run(3, state="running", ended_at=None),
            run(4, ended_at=at(4, 40)),
            run(5, started_at=None, ended_at=at(5, 40)),
            LedgerRow(id="l2", run_id="r2", amount_micros=700),
            LedgerRow(id="l4", run_id="r4", amount_micros=600, state="reserved"),
            LedgerRow(id="l5", run_id="r5", amount_micros=8, is_simulated=1),
            LedgerRow(id="l3", run_id="r3", amount_micros=9, is_simulated=1),
        )

        assert {order: await page_through(db, order) for order in ListOrder} == EXPECTED


@pytest.mark.parametrize(
    "parts",
    [
        ("newest", at(1), "", "", at(1), "r1"),
        ("costliest", at(1), "", "", 1, "r1"),
        ("costliest", at(1), "", "", "1", "2", "r1"),
        ("costliest", at(1), "", "", 2**64, 0, "r1"),
        ("costliest", at(1), "", "", True, 0, "r1"),
        ("costliest", "no time", "", "", 1, 0, "r1"),
        ("costliest", 1, "", "", 1, 0, "r1"),
        ("costliest", at(1), "no number", "", 1, 0, "r1"),
        ("costliest",),
    ],
)
def test_a_cursor_of_another_order_or_shape_is_refused(parts: tuple[str | int, ...]) -> None:
    with pytest.raises(CursorInvalid):
        from_cursor(to_cursor(*parts), ListOrder.COSTLIEST)
