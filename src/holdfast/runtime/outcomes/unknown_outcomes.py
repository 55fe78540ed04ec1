"""What became of a call that was in flight when its process died, as its policy, its destination or a person says.

Nothing is written here. Whoever asks records the outcome, makes the call again, or lets a person be asked.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.errors import ToolOutcomeUnknown


@dataclass(frozen=True)
class Done:
    """A reconciler's answer: the call happened, and this is its result."""

    result: Any = None


@dataclass(frozen=True)
class NotDone:
    """A reconciler's answer: the call did not happen; it may be made."""

    resolution: str = "not_done"
    """How the journal tells it; `reattached` where the call goes on with what was begun."""


@dataclass(frozen=True)
class Unclear:
    """A reconciler's answer: it cannot be found out; a person is asked."""


@dataclass(frozen=True)
class Aborted:
    """A person's answer: the run is to end."""

    reason: str
    by: str


Reconcile = Callable[[str], Awaitable[Done | NotDone | Unclear]]
OnUnknown = Literal["rerun", "ask", "fail"] | Reconcile


def from_answer(answer: Mapping[str, Any]) -> Done | NotDone | Aborted | None:
    """Turn a person's answer into an outcome; `None` if the step is to fail."""
    match answer.get("action"):
        case "done":
            return Done(answer.get("result"))
        case "rerun" | "approve":
            return NotDone("rerun")
        case "abort":
            return Aborted(answer.get("comment", ""), answer.get("by", ""))
    return None


async def from_policy(on_unknown: OnUnknown, idempotency_key: str) -> Done | NotDone | Unclear | None:
    """Return what the step's policy says, or the destination that it asks; `None` if the step is to fail."""
    if on_unknown == "rerun":
        return NotDone("rerun")
    if on_unknown == "ask":
        return Unclear()
    if on_unknown == "fail":
        return None
    outcome: Any = on_unknown(idempotency_key)
    if inspect.isawaitable(outcome):
        outcome = await outcome
    if not isinstance(outcome, Done | NotDone | Unclear):
        raise TypeError(f"A reconciler returns Done(result) or NotDone(), not {outcome!r}.")
    return outcome


def unknown_error(run_id: str, key: str) -> ToolOutcomeUnknown:
    return ToolOutcomeUnknown(
        f"Step {key!r} of run {run_id!r} was in flight when its process ended; whether it happened is unknown.",
        hint="Look, then answer with decide(run_id, key, 'rerun') or decide(run_id, key, 'done', result=…).",
        run_id=run_id,
        key=key,
    )
