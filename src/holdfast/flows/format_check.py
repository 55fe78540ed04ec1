"""Runs of flows that a newer version has written are refused before anything of them is read or claimed."""

from holdfast.enums import RunStatus
from holdfast.errors import RunNotInState
from holdfast.runtime.checkpoint.base import FLOW_FORMAT
from holdfast.runtime.flow_rows import FlowRow, read_row
from holdfast.runtime.journal import Journal


def describe_newer(row: FlowRow) -> str | None:
    """Say that this version leaves a run alone, if it is not over and its format is too high."""
    if row.format <= FLOW_FORMAT or RunStatus(row.status).is_terminal:
        return None
    return (
        f"A newer holdfast has written it, in format {row.format}; this one drives flows of formats up to "
        f"{FLOW_FORMAT}, and leaves it alone."
    )


async def find_newer(journal: Journal, run_id: str) -> FlowRow | None:
    """Return the row of a run if its format is too high for this version."""
    row = await journal.query(lambda store: read_row(store, run_id)) if journal.store.has_rows else None
    return row if row is not None and row.format > FLOW_FORMAT else None


async def check_format(journal: Journal, run_id: str) -> None:
    """Raise `RunNotInState` if a run's format is too high for this version."""
    if (row := await find_newer(journal, run_id)) is not None:
        raise to_newer_error(row)


def to_newer_error(row: FlowRow) -> RunNotInState:
    """Return the error that says that a run is left to newer versions; `missing` says what a worker lacks."""
    return RunNotInState(
        describe_newer(row) or f"A newer holdfast has written run {row.run_id}, in format {row.format}.",
        hint="Take the holdfast that has written it.",
        missing=f"a holdfast that drives flows of format {row.format}",
    )
