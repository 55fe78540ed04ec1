"""Pages of runs, of workflows and of flows in one order, which are two tables.

Rule: a cursor says how far a page has come in each of the two. So no run is left out and none comes twice, whatever is
created or deleted meanwhile and however many runs were created at one moment.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from holdfast.api.flow_serialize import to_flow_item
from holdfast.api.schemas import RunPage
from holdfast.api.serialize import cursor_error, read_cursor, to_cursor, to_run_item
from holdfast.api.server.flow_requests import find_driven
from holdfast.api.server.server import Server
from holdfast.enums import RunStatus
from holdfast.fleet.explanation import explain_runs
from holdfast.flows.format_check import describe_newer
from holdfast.persistence.listings import ListedRun, RunFilter, list_page, list_phases
from holdfast.persistence.models import RunRow
from holdfast.persistence.run_order import ListOrder, ListPlace
from holdfast.persistence.statements.table import now_text, to_time_text
from holdfast.presentation.status import describe_wait
from holdfast.runtime import flow_rows
from holdfast.runtime.flow_filter import FlowFilter
from holdfast.runtime.flow_rows import FlowRow

_TICK = timedelta(milliseconds=1)  # what two moments may differ by that are one in a row's text
BY_CREATION = (ListOrder.NEWEST, ListOrder.OLDEST)
"""The orders that runs of workflows and of flows have in common."""


@dataclass(frozen=True)
class PagePlaces:
    """Where the next page begins, among the runs of workflows and among those of flows.

    Of a flow it is when it was created, and its id; without an id the page begins at that moment, `None` is the
    beginning.
    """

    workflow: ListPlace
    flow: tuple[float, str | None] | None = None


def begin(order: ListOrder) -> PagePlaces:
    """Return where the first page begins."""
    return PagePlaces(ListPlace(order, now_text()))


async def read_page(
    server: Server, workflows: RunFilter | None, flows: FlowFilter | None, *, limit: int, places: PagePlaces
) -> RunPage:
    """Read at most `limit` of the runs of workflows and of flows that fit; `None` is none of these."""
    order = places.workflow.order
    is_oldest_first = order is ListOrder.OLDEST
    found = [] if workflows is None else await list_page(server.db, workflows, limit=limit + 1, place=places.workflow)
    phases = await list_phases(server.db, [each.run.id for each in found])
    reasons = await _find_reasons(server, [each.run for each in found])
    items = [to_run_item(each, phases.get(each.run.id, ()), reason=reasons.get(each.run.id)) for each in found]
    rows: list[FlowRow] = []
    if flows is not None:
        options: dict[str, Any] = {"limit": limit + 1, "after": places.flow, "is_oldest_first": is_oldest_first}
        rows = await server.journal.query(lambda store: flow_rows.read_page(store, flows, **options))
    driven = await find_driven(server, rows) if rows else set()
    failures = await server.flow_failures.describe(rows)
    of_flows = [
        to_flow_item(
            row,
            is_driven=row.run_id in driven,
            reason=(None if row.run_id in driven else describe_newer(row)) or server.find_reason(row.run_id),
            failure=failures.get(row.run_id, ""),
        )
        for row in rows
    ]
    # Each of the two stays in the order of its table, in which the cursor counts.
    merged = items
    if order in BY_CREATION:
        merged = list(heapq.merge(items, of_flows, key=lambda item: item.created_at, reverse=not is_oldest_first))
    page = merged[:limit]
    if len(merged) <= limit:
        return RunPage(items=page, next_cursor=None)
    last_run = next((each for each in reversed(found) if any(item.run_id == each.run.id for item in page)), None)
    last_flow = next((row for row in reversed(rows) if any(item.run_id == row.run_id for item in page)), None)
    return RunPage(items=page, next_cursor=_to_cursor(_go_on(places, last_run, last_flow, page[-1].created_at)))


async def _find_reasons(server: Server, runs: Sequence[RunRow]) -> dict[str, str]:
    """Find why the runs of workflows on a page stand still, in as many queries for one as for all."""
    here = {run.id: reason for run in runs if (reason := server.find_reason(run.id))}
    open_runs = [run for run in runs if run.state in (RunStatus.PENDING, RunStatus.RUNNING) and run.id not in here]
    due = [run.id for run in open_runs if describe_wait(run.waits_for, run.due_at) is None]
    waits = await server.find_waits([run.id for run in open_runs if run.state == RunStatus.RUNNING])
    return await explain_runs(server.db, due) | waits | here


def _go_on(before: PagePlaces, run: ListedRun | None, flow: FlowRow | None, last: str) -> PagePlaces:
    """Return where the next page begins behind these, the last of their kind; `last` is when the page's last was made.

    Where none was on a page yet, it begins at the end of this one: what is created meanwhile comes before it.
    """
    is_oldest_first = before.workflow.order is ListOrder.OLDEST
    try:
        end = datetime.fromisoformat(last)
    except ValueError:
        end = None  # a row that another program wrote
    workflow, flow_place = before.workflow, before.flow
    if run is not None:
        workflow = replace(workflow, values=run.place)
    elif end is not None and not workflow.values:
        workflow = replace(workflow, values=(to_time_text(end if is_oldest_first else end + _TICK), ""))
    if flow is not None:
        flow_place = flow.created_at, flow.run_id
    elif end is not None and flow_place is None:
        flow_place = (end - _TICK if is_oldest_first else end + _TICK).timestamp(), None
    return PagePlaces(workflow, flow_place)


def _to_cursor(places: PagePlaces) -> str:
    at, run_id = places.flow or ("", None)
    return to_cursor(places.workflow.order.value, places.workflow.at, str(at), run_id or "", *places.workflow.values)


def from_cursor(cursor: str, order: ListOrder) -> PagePlaces:
    """Return where the next page begins. Raises `CursorInvalid`, also for a cursor of another order."""
    match read_cursor(cursor):
        case [order.value, str(at), str(flow_at), str(flow_id), *values]:
            place = ListPlace(order, at, tuple(values))
            if _is_time(at) and (not values or place.is_valid()) and (not flow_at or _is_number(flow_at)):
                return PagePlaces(place, (float(flow_at), flow_id or None) if flow_at else None)
    raise cursor_error()


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
