"""Runs that kill whoever drives them: after three owners died one after the other, a person looks first.

What counts are takeovers from an owner that died, with nothing recorded in between: each claim knows the last ones, so
that it does not matter how far an owner came. A run that gets anywhere between two deaths is driven on, however often
machines die.
"""

from collections.abc import Iterator, Sequence

from holdfast.enums import PauseReason
from holdfast.runtime.checkpoint.base import MOST_TAKEOVERS, Claim
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.step import Suspended

MOST_DEATHS = MOST_TAKEOVERS
SETUP_LANE = "setup"  # and, if it is repeated, with # and a number
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
        EventKind.RUN_FAILED,
        EventKind.VALUE_RECORDED,
        EventKind.CHILD_COMPLETED,
        EventKind.EVENT_RECEIVED,
    }
)


class RunCrashing(Suspended):
    """The processes that drove the run died, each before anything was recorded."""

    reason = PauseReason.CRASHING


def find_crash_loop(claim: Claim, events: Sequence[Event] | None = None) -> RunCrashing | None:
    """Return why the run must not be driven by this claim; `None` if it may be.

    Without `events` only deaths since the last event count: whoever reads the journal may die of it too.
    """
    if not claim.is_takeover:
        return None
    since = [head for head in claim.takeovers if head >= claim.head]
    deaths = len(since) if events is None else count_deaths(events, claim.takeovers)
    return RunCrashing(f"{deaths} processes died with it") if deaths >= MOST_DEATHS else None


def count_deaths(events: Sequence[Event], takeovers: Sequence[int]) -> int:
    """Count the owners that died one after the other with nothing recorded in between, the last one among them.

    `takeovers` are those that claims have counted. Versions before those did are known by their events alone.
    """
    deaths, last = 1, 0
    for event, is_progress in _judge(events):
        if is_progress:
            deaths, last = 1, event.seq
        deaths += event.kind == EventKind.RUN_RESUMED and bool(event.payload.get("taken_over"))
    return max(deaths, sum(head >= last for head in takeovers))


def has_progress(events: Sequence[Event]) -> bool:
    """Tell whether anything was recorded that a death does not take back."""
    return any(is_progress for _, is_progress in _judge(events))


def _judge(events: Sequence[Event]) -> Iterator[tuple[Event, bool]]:
    """Yield each event with whether it is progress. Set-up that is repeated because the run has moved is none."""
    has_moved = False
    for event in events:
        if event.kind == EventKind.RUN_RESUMED:
            has_moved = False
        elif event.kind == EventKind.WORKSPACE_MOVED:
            has_moved = True
        yield event, event.kind in _PROGRESS and not (has_moved and _is_preparation(event))


def _is_preparation(event: Event) -> bool:
    return event.kind == EventKind.WORKSPACE_PREPARED or event.lane_id.partition("#")[0] == SETUP_LANE
