"""Money that was perhaps paid, settled later: by what the provider tells of an answer that was lost, or by a person.

Rule: only who holds the run settles what is open in it, so that no call under way is taken for one that is over.
"""

import contextlib
from decimal import Decimal
from typing import Any

from holdfast.agents.calls.gate import Usage
from holdfast.engine.run.load import RunId, get_run
from holdfast.engine.scope import RunScope
from holdfast.errors import ConfigInvalid, RowRefused, RunNotInState
from holdfast.persistence.db import Database
from holdfast.persistence.statements import settle_money
from holdfast.runtime.events import Event, EventKind, create_event
from holdfast.runtime.run_fold.calls import CallLog
from holdfast.runtime.run_fold.money import OpenReservation, RunMoney
from holdfast.runtime.step import SameCommit
from holdfast.runtime.stores import open_journal

_MOST_LOOK_UPS = 20


async def settle_by_provider(scope: RunScope) -> None:
    """Settle what calls of earlier processes have cost, as far as their provider knows; the rest stays counted."""
    looked_up = 0
    for reservation in scope.history.unanswered:
        persona = scope.personas.get(_role_of(scope, reservation))
        if persona is None or not reservation.response_id or looked_up >= _MOST_LOOK_UPS:
            continue
        from holdfast.agents.models.generation_cost import can_look_up, look_up_cost

        if not can_look_up(persona):
            continue
        looked_up += 1
        usage = await look_up_cost(persona, reservation.response_id)
        if usage is None:
            continue
        commit = _to_commit(scope.run_id, reservation, usage, response_id=reservation.response_id)
        # crash: before this the provider is asked again; after it the money is settled.
        with contextlib.suppress(RowRefused):  # a person was faster
            await scope.log.append(*commit.events, rows=commit.rows)


def _role_of(scope: RunScope, reservation: OpenReservation) -> str:
    return next((phase.role for phase in scope.template.phases if phase.key == reservation.phase), "")


async def settle_by_person(db: Database, run_id: RunId, call: str, cost_usd: Decimal, *, by: str = "") -> str:
    """Settle the money of one call at what a person says that it has cost; returns the key of its step.

    `call` is the entry as `holdfast budget RUN` shows it, its beginning, or the step's key. Raises `RunBusy` while
    somebody drives the run, and `RunNotInState` if no one call is meant.
    """
    stored = await get_run(db, run_id)
    micros = round(cost_usd * 1_000_000) if cost_usd.is_finite() else -1
    if not 0 <= micros < 10**12:
        raise ConfigInvalid("A call costs 0 dollars or more.", key="settle")
    async with open_journal(db.store) as journal:
        claim = await journal.claim(stored.run.id)
        try:
            meant = _find_meant(await journal.read(stored.run.id), call)
            commit = _to_commit(stored.run.id, meant, Usage(0, 0, cost_micros=micros), by=by)
            await journal.append(stored.run.id, commit.events, claim=claim, rows=commit.rows)
        finally:
            await journal.release(claim)
    return meant.step


def _find_meant(events: list[Event], call: str) -> OpenReservation:
    calls = CallLog()
    money = RunMoney(calls)
    for event in events:
        calls.add(event)
        money.add(event)
    found = [each for each in money.find_unanswered() if call and (each.entry.startswith(call) or each.step == call)]
    if len(found) != 1:
        what = "no call" if not found else f"{len(found)} calls"
        raise RunNotInState(
            f"{call!r} names {what} whose money is open.",
            hint="holdfast budget RUN lists the calls that were perhaps paid, each with its own name.",
        )
    return found[0]


def _to_commit(run_id: str, reservation: OpenReservation, usage: Usage, **facts: Any) -> SameCommit:
    cost = usage.cost_micros or 0
    used: dict[str, Any] = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    event = create_event(
        run_id,
        EventKind.BUDGET_SETTLED,
        reservation.lane_id,
        entry=reservation.entry,
        step=reservation.step,
        amount_micros=cost,
        **used,
        **facts,
    )
    return SameCommit([event], settle_money(reservation.entry, cost_micros=cost, **used))
