"""What is done to a run from outside: answer, cancel, retry, resume, delete. Safe beside an owner and each other."""

from collections.abc import Sequence
from typing import Any

from holdfast.enums import ApprovalDecisionAction, PauseReason, RunStatus
from holdfast.errors import (
    ApprovalNotFound,
    ConfigInvalid,
    HoldfastError,
    RunAlreadyTerminal,
    RunBusy,
    RunNotFound,
    RunNotInState,
    SequenceConflict,
)
from holdfast.flows.format_check import find_newer
from holdfast.runtime import flow_rows
from holdfast.runtime.checkpoint.base import Statement
from holdfast.runtime.events import EventKind, create_event
from holdfast.runtime.flow_rows import rows_of
from holdfast.runtime.journal import Journal
from holdfast.runtime.jsondata import to_json, to_json_as_is
from holdfast.runtime.records import Record, Records
from holdfast.runtime.stores import StoreLike, no_such_run, open_journal

_APPROVAL_ACTIONS = tuple(action.value for action in ApprovalDecisionAction)
_OUTCOME_ACTIONS = ("rerun", "done", "approve", "reject", "abort")


async def decide(
    run_id: str,
    key: str,
    action: ApprovalDecisionAction | str,
    *,
    store: StoreLike = "holdfast.db",
    comment: str = "",
    by: str = "",
    result: Any = None,
) -> None:
    """Answer what a run waits for; the first answer counts. Run it again to go on.

    For an approval `action` is one of `ApprovalDecisionAction`. For a step of unknown outcome it is `"rerun"` (or
    `"approve"`), `"done"` with its `result`, `"reject"` (the step fails) or `"abort"`. Raises `RunNotFound`,
    `ApprovalNotFound` if nothing of that key waits, `RunBusy` if the step is in flight in a live process, and
    `RunAlreadyTerminal` if the run is complete or cancelled.
    """
    async with open_journal(store) as journal:
        while True:
            records = await _read(journal, run_id)
            if records.status in (RunStatus.COMPLETED, RunStatus.CANCELLED):
                raise _already(run_id, records)
            record = _find_question(run_id, records, key)
            if not record.is_waiting_for_person:
                # Nobody asked: the step's outcome is unknown only if the process that makes the call is gone.
                await journal.release(await journal.claim(run_id))
            answer = {"key": record.key, "action": _checked(record, action), "comment": comment, "by": by}
            if action == "done":
                answer["result"] = to_json(result, "result")[1]
            event = create_event(
                run_id, EventKind.HUMAN_APPROVAL_RECEIVED, record.lane_id, seq=records.last_seq + 1, **answer
            )
            try:
                await journal.append(run_id, [event], rows=rows_of(journal, flow_rows.due(run_id)))
                return
            except SequenceConflict:
                continue  # someone wrote in between: look again whether the question still stands


async def cancel_flow(run_id: str, *, store: StoreLike = "holdfast.db", reason: str = "", by: str = "") -> None:
    """Cancel a run: at once if nobody drives it, else as soon as its owner sees the request.

    A run with something to undo (`ctx.compensate`), in itself or in a child, is cancelled by its own code: the owner's,
    or that of whoever runs it next. A second request ends what compensates. Raises `RunNotFound`, `RunAlreadyTerminal`.
    """
    async with open_journal(store) as journal:
        await cancel_in_journal(journal, run_id, reason=reason, by=by)


async def cancel_in_journal(
    journal: Journal, run_id: str, *, reason: str = "", by: str = "", is_first_only: bool = False
) -> bool:
    """Do what `cancel_flow` does; true if the run is cancelled now, false if its code still has to see to it.

    With `is_first_only` a run that somebody has asked to cancel already is left to that.
    """
    if not await request_cancel(journal, run_id, reason=reason, by=by, is_first_only=is_first_only):
        return False
    # crash: the request stands; whoever resumes the run cancels it.
    if await find_newer(journal, run_id) is not None:
        return False  # who drives it knows what is to be undone
    try:
        claim = await journal.claim(run_id)
    except RunBusy:
        return False
    try:
        records = await _read(journal, run_id)
        if records.status is RunStatus.CANCELLED:
            return True  # its owner has seen the request
        if _is_over(records):
            raise _already(run_id, records)
        for child in records.open_children():
            if not await _cancel_child(journal, child.child_run_id, reason=reason, by=by):
                return False
        if records.open_scopes():
            return False  # only the flow's own code can undo what it has done
        ended = create_event(run_id, EventKind.RUN_CANCELLED, reason=reason, by=by)
        row = flow_rows.ended(run_id, RunStatus.CANCELLED)
        await journal.append(run_id, [ended], claim=claim, rows=rows_of(journal, row))
        return True
    finally:
        await journal.release(claim)


async def request_cancel(
    journal: Journal, run_id: str, *, reason: str = "", by: str = "", is_first_only: bool = False
) -> bool:
    """Write the request to cancel a run, for whoever drives it; false if there is one, with `is_first_only`.

    Raises `RunNotFound`, `RunAlreadyTerminal`.
    """
    while True:
        records = await _read(journal, run_id)
        if _is_over(records):
            raise _already(run_id, records)
        if is_first_only and records.cancel_request is not None:
            return False
        # With its number: of two processes that see the end of a time limit one asks.
        seq = records.last_seq + 1 if is_first_only else 0
        request = create_event(run_id, EventKind.RUN_CANCEL_REQUESTED, seq=seq, reason=reason, by=by)
        try:
            await journal.append(run_id, [request], rows=rows_of(journal, flow_rows.due(run_id)))
            return True
        except SequenceConflict:
            continue


async def retry_flow(run_id: str, *, store: StoreLike = "holdfast.db", by: str = "") -> None:
    """Let a failed run go on at the step that failed: a `Runtime`, or a server, with the flow's code takes it again.

    A second request before that changes nothing. Raises `RunNotFound`, and `RunNotInState` if the run has not failed,
    or another run began it: that one makes it again when it is retried.
    """
    async with open_journal(store) as journal:
        await retry_in_journal(journal, run_id, by=by)


async def retry_in_journal(journal: Journal, run_id: str, *, by: str = "") -> None:
    """Do what `retry_flow` does."""
    while True:
        records = await _read(journal, run_id)
        if records.status is not RunStatus.FAILED:
            raise RunNotInState(f"Run {run_id} is {records.status}; only a failed run can be retried.")
        parent = (records.created or {}).get("parent")
        if isinstance(parent, dict):
            raise RunNotInState(
                f"Run {run_id} was begun by run {parent.get('run_id')}, which drives it.",
                hint=f"Retry that run: holdfast retry {parent.get('run_id')}",
            )
        if records.is_retry_requested:
            return
        # With its number: two requests are one.
        request = create_event(run_id, EventKind.RUN_RESUME_REQUESTED, seq=records.last_seq + 1, by=by)
        try:
            await journal.append(run_id, [request], rows=rows_of(journal, flow_rows.reopened(run_id)))
        except SequenceConflict:
            continue
        # crash: the request and the row stand together; whoever knows the flow takes it.
        return


async def resume_flow(run_id: str, *, store: StoreLike = "holdfast.db", by: str = "") -> None:
    """Do what `resume_in_journal` does."""
    async with open_journal(store) as journal:
        await resume_in_journal(journal, run_id, by=by)


async def resume_in_journal(journal: Journal, run_id: str, *, by: str = "") -> None:
    """Let whoever knows the flow drive a run again that was paused because processes died with it.

    Raises `RunNotInState` if it was not, and `RunAlreadyTerminal`.
    """
    row = await journal.query(lambda store: flow_rows.read_row(store, run_id))
    if row is None or row.status != RunStatus.PAUSED or row.waits_for != PauseReason.CRASHING:
        raise _nothing_to_resume(run_id, None if row is None else RunStatus(row.status))
    request = create_event(run_id, EventKind.RUN_RESUME_REQUESTED, by=by)
    await journal.append(run_id, [request], rows=rows_of(journal, flow_rows.due(run_id)))


def _nothing_to_resume(run_id: str, status: RunStatus | None) -> HoldfastError:
    """Say why a flow is not to be resumed, and what can be done with it instead."""
    if status is RunStatus.FAILED:
        hint = f"Try the step that failed again: holdfast retry {run_id}"
        return RunAlreadyTerminal(f"Run {run_id} has failed.", hint=hint, run_id=run_id)
    if status is not None and status.is_terminal:
        hint = f"Do it anew from a step on: holdfast fork {run_id} KEY"
        return RunAlreadyTerminal(f"Run {run_id} is {status}.", hint=hint, run_id=run_id)
    if status is RunStatus.PAUSED:
        return RunNotInState(
            f"Run {run_id} waits for an answer, with which it goes on by itself.",
            hint="See for which: holdfast approvals",
        )
    return RunNotInState(
        f"Run {run_id} is of a flow, which goes on by itself.",
        hint="Whoever drives flows and knows this one takes it; it can be answered and cancelled.",
    )


async def delete_in_journal(journal: Journal, run_id: str, *, rows: Sequence[Statement] = ()) -> int:
    """Delete a run that is over, whole or not at all, and return about how many bytes it took.

    `rows` are changed in the same transaction. Raises `RunBusy`, `RunNotInState` while it is not over or a run that
    began it may still ask for its result.
    """
    row = await journal.query(lambda store: flow_rows.read_row(store, run_id))
    try:
        claim = await journal.claim(run_id)
    except RunBusy as error:
        raise RunBusy(
            f"Run {run_id} is being driven.", hint="Cancel it first: holdfast abort", run_id=run_id
        ) from error
    try:
        events = await journal.read(run_id)
        records = Records(events)
        status = records.status
        if records.is_retry_requested:
            raise RunNotInState(f"Run {run_id} failed and is to be run again.", hint="Wait until it is over.")
        if not (isinstance(status, RunStatus) and status.is_terminal):
            raise RunNotInState(
                f"Run {run_id} is {status}, not over.", hint=f"Cancel it first: holdfast abort {run_id}"
            )
        if row is not None and row.parent_run_id and not await _is_ended(journal, row.parent_run_id):
            raise RunNotInState(
                f"Run {row.parent_run_id} began run {run_id} and may go on: it would do it again.",
                hint="Delete that run first, or wait until it is completed or cancelled.",
            )
        await journal.delete(claim, rows=rows)
        # crash: the journal and its row go in one transaction; before it the run is whole.
        return sum(len(to_json_as_is(event.to_dict())) for event in events)
    finally:
        await journal.release(claim)


async def _is_ended(journal: Journal, run_id: str) -> bool:
    """Tell whether nobody can go on with a run; one that failed can be run again."""
    row = await journal.query(lambda store: flow_rows.read_row(store, run_id))
    return row is None or row.status in (RunStatus.COMPLETED, RunStatus.CANCELLED)


async def _cancel_child(journal: Journal, run_id: str, *, reason: str, by: str) -> bool:
    try:
        return await cancel_in_journal(journal, run_id, reason=reason, by=by)
    except (RunNotFound, RunAlreadyTerminal):
        return True


def _is_over(records: Records) -> bool:
    return isinstance(records.status, RunStatus) and records.status.is_terminal


def _already(run_id: str, records: Records) -> RunAlreadyTerminal:
    return RunAlreadyTerminal(f"Run {run_id!r} is {records.status}.", run_id=run_id)


async def _read(journal: Journal, run_id: str) -> Records:
    records = Records(await journal.read(run_id))
    if not records.last_seq:
        raise no_such_run(journal.store, run_id)
    return records


def _find_question(run_id: str, records: Records, key: str) -> Record:
    waiting = records.waiting_for_person() + [
        record for record in records.by_key.values() if record.type == "step" and record.is_in_doubt
    ]
    exact = [record for record in waiting if record.key == key]
    by_name = [record for record in waiting if record.key.removeprefix(f"{record.lane_id}/") == key]
    for found in (exact, by_name):
        if len({record.key for record in found}) == 1:
            return found[0]
    if len(by_name) > 1:
        names = ", ".join(repr(record.key) for record in by_name)
        raise ApprovalNotFound(f"{key!r} waits in several lanes of run {run_id!r}: {names}.", hint="Name one in full.")
    raise ApprovalNotFound(f"Nothing called {key!r} waits for an answer in run {run_id!r}{_why(records, key)}.")


def _why(records: Records, key: str) -> str:
    for record in records.by_key.values():
        if record.key == key and record.answer is not None:
            by = record.answer.get("by") or "someone"
            return f": {by} has answered {record.answer.get('action')!r} already"
    names = ", ".join(repr(record.key) for record in records.waiting_for_person())
    return f"; what waits is {names}" if names else "; nothing waits there"


def _checked(record: Record, action: ApprovalDecisionAction | str) -> str:
    allowed = _APPROVAL_ACTIONS if record.type == "approval" else _OUTCOME_ACTIONS
    if str(action) not in allowed:
        raise ConfigInvalid(
            f"{str(action)!r} is no answer to {record.key!r}.", hint=f"Use one of {', '.join(allowed)}."
        )
    return str(action)
