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
  AND (:day_limit < 0 OR :day_limit >= :amount + (
           SELECT COALESCE(SUM(amount_micros), 0) FROM ledger WHERE day = :day AND is_simulated = 0) + (
           SELECT COALESCE(SUM(amount_micros), 0) FROM past_spending WHERE day = :day AND is_simulated = 0))
"""


def reserve_money(entry: NewLedgerRow) -> Statement:
    """Reserve money for a call; refused if a limit of the run, the phase or the day would be passed.

    The limits are checked inside the transaction, so that parallel calls cannot pass one together.
    """
    now = now_text()
    limits = {name: -1 if (limit := getattr(entry, name)) is None else limit for name in ("phase_limit", "day_limit")}
    return Statement(_RESERVE, to_params({**vars(entry), **limits, "day": now[:10], "now": now}))


def settle_money(entry_id: str, *, cost_micros: int, input_tokens: int, output_tokens: int) -> Statement:
    """Settle a reservation at what the call has cost; refused if that was done before."""
    values = {
        "state": "settled",
        "amount_micros": cost_micros,
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "settled_at": now_text(),
    }
    return update("ledger", values, {"id": entry_id, "state": "reserved"})
