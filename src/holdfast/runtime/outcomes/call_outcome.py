"""What a call of a step has come to, as it is recorded and as its caller gets it."""

from typing import Any

from holdfast.errors import Nondeterminism, PayloadInvalid, RunPaused
from holdfast.runtime.jsondata import to_json, try_json
from holdfast.runtime.outcomes.failures import as_replayed, describe_error, describe_whole, mark_step
from holdfast.runtime.step import Failure, Step

_FINAL = (PayloadInvalid, Nondeterminism, RunPaused)  # another attempt would meet the same


def encode_result(step: Step, result: Any, *, is_from_outside: bool = False) -> tuple[Any, str | None, Any]:
    """Return a result as it is recorded, the name of its type, and as a replay returns it. Raises `PayloadInvalid`.

    What comes from outside, as an answer, may be the JSON data of a value of the type.
    """
    if step.codec is None and (found := try_json(result)) is not None:
        return found[1], None, found[1]  # without a text for an error that most results do not meet
    what = f"the result of step {step.key!r}"
    if step.codec is None:
        copy = to_json(result, what)[1]
        return copy, None, copy
    return step.codec.encode(step.codec.accept(result, what) if is_from_outside else result, what)


def judge(step: Step, attempt: int, error: Exception) -> Failure:
    """Return what is recorded of a failed attempt, and after how long the next one is made, if any."""
    if step.on_failure is not None:
        return step.on_failure(error)
    describe = describe_whole if step.raises_as_recorded else describe_error
    return Failure(describe(error), None if isinstance(error, _FINAL) else step.retry.wait_s(attempt, error))


def to_raise(step: Step, error: Exception, failure: Failure) -> Exception:
    """Return what the caller of a step gets for its final failure: what a replay will raise, where there is one."""
    if step.raises_as_recorded:
        return as_replayed(step.key, error, failure.error)
    mark_step(error, step.key)
    return error
