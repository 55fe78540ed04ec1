"""The orders in which runs are listed, and where a page of such a list begins.

Rule: a page begins behind the place of a run, not at a number, so that nothing is listed twice or left out because
others came or went. A run whose cost changes while somebody pages may move; what a run under way has taken is measured
at the time of the first page, and so it does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import TIMESTAMP, BigInteger, ColumnElement, Select, cast, extract, func, literal, select, tuple_

from holdfast.persistence.db import Database
from holdfast.persistence.models import LedgerRow, RunRow


class ListOrder(StrEnum):
    NEWEST = "newest"
    OLDEST = "oldest"
    COSTLIEST = "costliest"
    CHEAPEST = "cheapest"
    LONGEST = "longest"
    SHORTEST = "shortest"


_ASCENDING = (ListOrder.OLDEST, ListOrder.CHEAPEST, ListOrder.SHORTEST)
_TEXT, _NUMBER = str, int
_SHAPES: dict[ListOrder, tuple[type, ...]] = {
    ListOrder.NEWEST: (_TEXT, _TEXT),
    ListOrder.OLDEST: (_TEXT, _TEXT),
    ListOrder.COSTLIEST: (_NUMBER, _NUMBER, _TEXT),
    ListOrder.CHEAPEST: (_NUMBER, _NUMBER, _TEXT),
    ListOrder.LONGEST: (_NUMBER, _TEXT),
    ListOrder.SHORTEST: (_NUMBER, _TEXT),
}
_MOST = 2**63 - 1


@dataclass(frozen=True)
class ListPlace:
    """Where a page begins: behind the run with these values; the beginning if there are none.

    `at` is when the first page was read, as the rows have times.
    """

    order: ListOrder
    at: str
    values: tuple[str | int, ...] = ()

    def is_valid(self) -> bool:
        """Tell whether these can be the values of a run in this order."""
        shape = _SHAPES[self.order]
        are_typed = len(self.values) == len(shape) and all(
            type(value) is each for value, each in zip(self.values, shape, strict=True)
        )
        return are_typed and all(abs(value) <= _MOST for value in self.values if isinstance(value, int))


def sum_of_run(*conditions: Any) -> ColumnElement[int]:
    """Sum up the ledger of a run, as a column of a query of runs."""
    return (
        select(func.coalesce(func.sum(LedgerRow.amount_micros), 0))
        .where(LedgerRow.run_id == RunRow.id, *conditions)
        .correlate(RunRow)
        .scalar_subquery()
    )


def list_keys(db: Database, place: ListPlace) -> list[ColumnElement[Any]]:
    """List the columns that a list of runs is ordered by; the last is the id."""
    if place.order in (ListOrder.COSTLIEST, ListOrder.CHEAPEST):
        # Play money is never added to real money: it decides between runs that cost nothing.
        return [sum_of_run(LedgerRow.is_simulated == 0), sum_of_run(LedgerRow.is_simulated == 1), _id()]
    if place.order in (ListOrder.LONGEST, ListOrder.SHORTEST):
        return [_milliseconds(db, place.at), _id()]
    return [RunRow.created_at.expression, _id()]


def in_order(query: Select[Any], place: ListPlace, keys: Sequence[ColumnElement[Any]]) -> Select[Any]:
    """Return the query from this place on."""
    is_ascending = place.order in _ASCENDING
    if place.values:
        row, last = tuple_(*keys), tuple_(*(literal(value) for value in place.values))
        query = query.where(row > last if is_ascending else row < last)
    return query.order_by(*(key if is_ascending else key.desc() for key in keys))


def _id() -> ColumnElement[str]:
    return RunRow.id.expression


def _milliseconds(db: Database, at: str) -> ColumnElement[int]:
    """Return how long a run took, or has taken until then, from its start or else from its creation."""
    start = func.coalesce(func.nullif(RunRow.started_at, ""), RunRow.created_at)
    end = func.coalesce(func.nullif(RunRow.ended_at, ""), at)
    if db.path is None:
        moment = TIMESTAMP(timezone=True)
        seconds: ColumnElement[Any] = extract("epoch", cast(end, moment) - cast(start, moment))
    else:
        seconds = (func.julianday(end) - func.julianday(start)) * 86_400
    return func.coalesce(cast(func.round(seconds * 1000), BigInteger), 0)
