"""The event that records the result of a step, encoded straight from its parts.

Nearly all that a flow writes is of this one kind, so it is made without the event object in between. The bytes are
those that `prepare` makes of the same event.
"""

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.runtime.checkpoint.base import Prepared, prepare
from holdfast.runtime.checkpoint.blobs import INLINE_BYTES
from holdfast.runtime.events import from_body, new_span_id
from holdfast.runtime.step import Step

MIN_TOOK_S = 0.01  # a call that takes less is shown as one that takes no time
_encode = msgspec.json.Encoder().encode


class _Payload(msgspec.Struct, omit_defaults=True, gc=False):
    key: str
    result: Any
    attempt: int = 1
    fingerprint: Mapping[str, str] | None = None
    result_type: str | None = None
    took_s: float = 0.0


class _Body(msgspec.Struct, omit_defaults=True, gc=False):
    kind: str
    ts: float
    span_id: str
    payload: _Payload
    lane_id: str = "main"


def prepare_result(
    run_id: str, step: Step, attempt: int, data: Any, type_name: str | None, began_at: float
) -> Prepared:
    """Encode the result of a claimed run's step: JSON data that nobody changes, and the name of its type, if any."""
    kind, at = step.kinds.completed_text, time.time()
    took_s = at - began_at
    payload = _Payload(
        step.key, data, attempt, step.fingerprint or None, type_name, 0.0 if took_s < MIN_TOOK_S else round(took_s, 3)
    )
    body = _encode(_Body(kind, at, new_span_id(), payload, step.lane_id))
    if len(body) > INLINE_BYTES:
        return prepare(from_body(run_id, 0, body))
    return Prepared(run_id, kind, 0, body)
