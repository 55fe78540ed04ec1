"""What keeps a schedule from starting runs, in words. Pure: from its row and that of a run."""

from holdfast.enums import RunStatus
from holdfast.persistence.schedule_table import Schedule
from holdfast.presentation.format import plural
from holdfast.presentation.status import PAUSES


def describe_skips(schedule: Schedule, holder: tuple[str, str | None] | None) -> str:
    """Say how many times were skipped and for which run, given its state and what it waits for, if it is there."""
    run = f"{'last ' if schedule.skipped_for == schedule.last_run_id else ''}run {str(schedule.skipped_for)[:8]}"
    skips = f"{plural(schedule.skipped, 'time')} {'was' if schedule.skipped == 1 else 'were'} skipped"
    if holder is None or RunStatus(holder[0]).is_terminal:
        return f"{skips} while its {run} was not over."
    return f"Its {run} {_describe_holder(*holder)}: {skips}."


def _describe_holder(state: str, reason: str | None) -> str:
    if state == RunStatus.PENDING:
        return "is still to be started"
    if reason is not None and reason in PAUSES:
        line = PAUSES[reason].line
        line = f"{line[0].lower()}{line[1:]}"
        return f"still {line}" if line.startswith("waits ") else f"is still paused ({line})"
    return f"still waits for {reason}" if reason else "still runs"
