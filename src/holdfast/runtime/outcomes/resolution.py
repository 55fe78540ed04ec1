"""A step that was in flight when its process died: what became of it is found out, recorded, or asked."""

from typing import TYPE_CHECKING, Any

from holdfast.errors import PayloadInvalid
from holdfast.runtime.events import EventKind
from holdfast.runtime.outcomes.call_outcome import encode_result
from holdfast.runtime.outcomes.unknown_outcomes import (
    Aborted,
    Done,
    NotDone,
    Unclear,
    from_answer,
    from_policy,
    unknown_error,
)
from holdfast.runtime.records import Record, StepState
from holdfast.runtime.step import CancelRun, Step, Suspended, idempotency_key

if TYPE_CHECKING:
    from holdfast.runtime.run_log import RunLog


async def resolve(log: "RunLog", step: Step, record: Record) -> bool:
    """Settle a step that was in flight when its process died. True: it is done. False: it may be called again."""
    outcome: Done | NotDone | Unclear | Aborted | None
    if record.answer is not None:
        outcome = from_answer(record.answer)
    else:
        outcome = await from_policy(step.on_unknown, idempotency_key(log.run_id, step.key))
    match outcome:
        case Done(result):
            resolved = "reconciled" if record.answer is None else "answered"
            try:
                await _complete(log, step, record, result, resolved=resolved)
            except PayloadInvalid as error:
                if record.answer is None:
                    raise
                record.has_question = False  # a person can mend it, so ask again and say what was wrong
                await _ask(log, step, record, problem=error.message)
                raise Suspended(step.key) from error
            return True
        case NotDone(resolution):
            await log.append(log.event(step.kinds.unknown, step.lane_id, key=step.key, resolution=resolution))
            return False
        case Unclear():
            await _ask(log, step, record)
            raise Suspended(step.key)
        case Aborted(reason, by):
            raise CancelRun(reason, by)
    raise unknown_error(log.run_id, step.key)


async def _ask(log: "RunLog", step: Step, record: Record, **more: str) -> None:
    if record.has_question:
        return
    show = {"question": "This step was in flight when its process ended. Run it again?", **more, **step.details}
    await log.append(
        log.event(step.kinds.unknown, step.lane_id, key=step.key, resolution="ask"),
        log.event(EventKind.HUMAN_APPROVAL_REQUESTED, step.lane_id, key=step.key, about="outcome", show=show),
    )
    record.has_question = True


async def _complete(log: "RunLog", step: Step, record: Record, result: Any, *, resolved: str) -> None:
    result, type_name, _ = encode_result(step, result, is_from_outside=True)
    named = {} if type_name is None else {"result_type": type_name}
    await log.append(
        log.step_event(step, step.kinds.completed, record.attempt or 1, result=result, resolved=resolved, **named)
    )
    record.state, record.result, record.result_type = StepState.COMPLETED, result, type_name
