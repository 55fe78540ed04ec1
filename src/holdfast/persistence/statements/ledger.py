"""Writes of the table `ledger`: money, reserved with a call and settled with its answer."""

from dataclasses import dataclass

from holdfast.persistence.statements.table import now_text, to_params, update
from holdfast.runtime.checkpoint.base import Statement


@dataclass(frozen=True)
class NewLedgerRow:
    """Money that is reserved for a call, with the limits of its phase and of the day; `None` is no limit."""

    id: str
    run_id: str
    phase_key: str
    attempt: int
    step_key: str
    amount: int
    model: str
    persona: str
    is_simulated: bool
    phase_limit: int | None
    day_limit: int | None


_RESERVE = """
INSERT INTO ledger (id, run_id, phase_key, attempt, step_key, state, amount_micros, reserved_micros, model, persona,
                    day, is_simulated, created_at)
SELECT :id, :run_id, :phase_key, :attempt, :step_key, 'reserved', :amount, :amount, :model, :persona, :day,
       :is_simulated, :now
WHERE (SELECT budget_micros IS NULL OR budget_micros >= :amount + (
           SELECT COALESCE(SUM(amount_micros), 0) FROM ledger
           WHERE run_id = :run_id AND is_simulated = :is_simulated)
       FROM runs WHERE id = :run_id)
  AND (:phase_limit < 0 OR :phase_limit >= :amount + (
           SELECT COALESCE(SUM(amount_micros), 0) FROM ledger
           WHERE run_id = :run_id AND phase_key = :phase_key AND is_simulated = :is_simulated))
"""
# One row a day, which every process locks until its commit: sums of other runs' rows would not see what is not
# committed yet, and two calls would pass the limit together.
_SPEND = """
INSERT INTO budget_days (day, spent_micros) SELECT :day, :amount WHERE {limit} < 0 OR :amount <= {limit}
ON CONFLICT (day) DO UPDATE SET spent_micros = budget_days.spent_micros + excluded.spent_micros
WHERE {limit} < 0 OR budget_days.spent_micros + excluded.spent_micros <= {limit}
""".format(limit="COALESCE((SELECT l.amount FROM limits AS l WHERE l.kind = 'day'), :day_limit)")
_SETTLE_DAY = """
UPDATE budget_days SET spent_micros = spent_micros + :cost - (SELECT amount_micros FROM ledger WHERE id = :id)
WHERE day = (SELECT day FROM ledger WHERE id = :id AND state = 'reserved' AND is_simulated = 0)
"""


def reserve_money(entry: NewLedgerRow) -> list[Statement]:
    """Reserve money for a call; refused if a limit of the run, the phase or the day would be passed.

    The limits are checked inside the transaction, so that parallel calls cannot pass one together, in whichever
    process. Of the day the limit that was set for all processes counts, else this one's. Play money counts against no
    day.
    """
    now = now_text()
    values = {**vars(entry), "phase_limit": _to_limit(entry.phase_limit), "day": now[:10], "now": now}
    day_limit = values.pop("day_limit")
    reserve = Statement(_RESERVE, to_params(values))
    if entry.is_simulated:
        return [reserve]
    spend = {"day": now[:10], "amount": entry.amount, "day_limit": _to_limit(day_limit)}
    return [reserve, Statement(_SPEND, to_params(spend))]


def _to_limit(micros: int | None) -> int:
    return -1 if micros is None else micros


def settle_money(entry_id: str, *, cost_micros: int, input_tokens: int, output_tokens: int) -> list[Statement]:
    """Settle a reservation at what the call has cost, on the day it was made; refused if that was done before."""
    values = {
        "state": "settled",
        "amount_micros": cost_micros,
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "settled_at": now_text(),
    }
    settle = update("ledger", values, {"id": entry_id, "state": "reserved"})
    return [Statement(_SETTLE_DAY, to_params({"id": entry_id, "cost": cost_micros}), expect=None), settle]
