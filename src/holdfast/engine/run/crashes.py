"""Runs that kill whoever drives them: after three owners died one after the other, a person looks first.

What counts is in the journal: takeovers from an owner that died, with nothing recorded in between. A run that gets
anywhere between two deaths is driven on, however often machines die.
"""

from collections.abc import Sequence

from holdfast.enums import PauseReason
from holdfast.runtime.checkpoint.base import Claim
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.step import Suspended

_MOST_DEATHS = 3
_PROGRESS = frozenset(
    {
        EventKind.STEP_COMPLETED,
        EventKind.STEP_FAILED,
        EventKind.MODEL_RESPONSE,
        EventKind.MODEL_ERROR,
        EventKind.TOOL_RESULT,
        EventKind.TOOL_ERROR,
        EventKind.WORKSPACE_PREPARED,
        EventKind.PHASE_STARTED,
        EventKind.AGENT_FINISHED,
        EventKind.ARTIFACT_WRITTEN,
        EventKind.ARTIFACT_REJECTED,
        EventKind.CHECKPOINT_SAVED,
        EventKind.PHASE_COMPLETED,
        EventKind.RUN_PAUSED,
    }
)


class RunCrashing(Suspended):
    """The processes that drove the run died, each before anything was recorded."""

    reason = PauseReason.CRASHING


def find_crash_loop(claim: Claim, events: Sequence[Event]) -> RunCrashing | None:
    """Return why the run must not be driven by this claim; `None` if it may be."""
    if not claim.is_takeover:
        return None
    deaths = 1
    for event in reversed(events):
        if event.kind in _PROGRESS:
            break
        deaths += event.kind == EventKind.RUN_RESUMED and bool(event.payload.get("taken_over"))
    return RunCrashing(f"{deaths} processes died with it") if deaths >= _MOST_DEATHS else None
