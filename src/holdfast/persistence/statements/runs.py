"""Writes of the table `runs`: made, started, waiting, over, and requested to go on."""

import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from holdfast.enums import TERMINAL_STATES, PauseReason, RunStatus
from holdfast.persistence.statements.table import now_text, to_params, update
from holdfast.runtime.checkpoint.base import Statement


@dataclass(frozen=True)
class NewRunRow:
    """A run as it is inserted: pending. Its template must be there by its hash."""

    id: str
    template_hash: str
    workflow: str
    repo_path: str
    base_branch: str
    base_commit: str | None
    title: str
    requirements_md: str
    budget_micros: int | None
    started_by: str
    is_simulated: bool
    forked_from: str | None
    queue: str = "runs"
    priority: int = 0
    due_at: str | None = None
    schedule: str | None = None


_INSERT_RUN = """
INSERT INTO runs (id, template_id, template_hash, state, repo_path, base_branch, created_at, updated_at, title,
                  workflow, requirements_md, budget_micros, started_by, is_simulated, forked_from, base_commit,
                  queue, priority, due_at, schedule)
SELECT :id, t.id, t.hash, :state, :repo_path, :base_branch, :now, :now, :title, :workflow,
       :requirements_md, :budget_micros, :started_by, :is_simulated, :forked_from, :base_commit,
       :queue, :priority, :due_at, :schedule
FROM workflow_templates t WHERE t.hash = :template_hash
"""


def insert_run(run: NewRunRow) -> Statement:
    """Insert a pending run; refused if its template is not there."""
    return Statement(_INSERT_RUN, to_params({**asdict(run), "state": RunStatus.PENDING, "now": now_text()}))


def lock_run(run_id: str) -> Statement:
    """Lock the row of a run until the transaction ends; refused if it is gone.

    A fork locks the run that it comes from, and whoever deletes runs locks the same row.
    """
    return Statement("UPDATE runs SET updated_at = updated_at WHERE id = :id", {"id": run_id})


_DELETE_RUN = f"""
DELETE FROM runs WHERE id = :id AND state IN ({", ".join(f"'{state}'" for state in TERMINAL_STATES)})
AND (wake IS NULL OR state <> 'failed')
AND NOT EXISTS (SELECT 1 FROM runs AS fork WHERE fork.forked_from = :id)
"""  # noqa: S608 - values of ours


def delete_run(run_id: str) -> Statement:
    """Delete the row of a run; refused if the run is not over, is to be retried, or has a fork."""
    return Statement(_DELETE_RUN, {"id": run_id})


def forget_positions(run_id: str) -> Statement:
    """Delete the positions of a run's events among all events, where that is a table; the last of all stays."""
    sql = "DELETE FROM feed WHERE run_id = :id AND position < (SELECT MAX(position) FROM feed)"
    return Statement(sql, {"id": run_id}, expect=None)


def place_run(run_id: str, *, worktree_root: str, base_commit: str) -> Statement:
    """Record where the files of a run are, and from which commit they come."""
    return _set_run(run_id, worktree_root=worktree_root, base_commit=base_commit)


def start_run(run_id: str) -> Statement:
    """Record that a run has started."""
    return _drive_run(run_id, started_at=now_text())


def resume_run(run_id: str, *, is_started_now: bool) -> Statement:
    """Record that a run goes on; with `is_started_now` that it never did before."""
    started = {"started_at": now_text()} if is_started_now else {}
    return _drive_run(run_id, pause_reason=None, error=None, **started)


def reopen_run(run_id: str) -> Statement:
    """Record that a failed run goes on, as if it had not ended."""
    return _drive_run(run_id, error=None, ended_at=None, final_report_path=None)


def _drive_run(run_id: str, **values: Any) -> Statement:
    order = {"driven_at": now_text(), "due_at": None, "waits_for": None}
    return _set_run(run_id, state=RunStatus.RUNNING, **order, **values)


_INPUT_REASONS = (PauseReason.OUTCOME, PauseReason.APPROVAL, PauseReason.BUDGET, PauseReason.MESSAGE)


def pause_run(
    run_id: str, reason: str, *, error: Mapping[str, Any] | None = None, due_at: str | None = None
) -> Statement:
    """Record that a run waits, for what, the error that made it wait if there is one, and when it goes on by itself.

    An answer, money or a message may have come while it was driven, and nobody has acted on it. What else asked it to
    go on came before the reason why it stops, and is over with it.
    """
    values: dict[str, Any] = {"pause_reason": reason, "error": error, "due_at": due_at, "admitted_epoch": 0}
    values |= {} if reason in _INPUT_REASONS else {"wake": None}
    return _set_run(run_id, state=RunStatus.PAUSED, **values)


def end_run(
    run_id: str, state: RunStatus, *, report_path: str, error: Mapping[str, Any] | None, verdict: str | None = None
) -> Statement:
    """Record that a run is over, and nobody asks it to go on; a merge before that had only a part of its result."""
    result: dict[str, Any] = {"final_report_path": report_path, "verdict": verdict, "merged_into": None}
    result |= {"waits_for": None, "admitted_epoch": 0, "wake": None}
    return _set_run(run_id, state=state, ended_at=now_text(), pause_reason=None, error=error, **result)


def set_merged(run_id: str, into: str) -> Statement:
    """Record where the result of a run was brought to."""
    return update("runs", {"merged_into": into}, {"id": run_id})


def change_run(run_id: str, *, requirements_md: str | None) -> Statement:
    """Record that a person changed a run, and its requirements if there are others."""
    changed = {} if requirements_md is None else {"requirements_md": requirements_md}
    return _set_run(run_id, **changed)


def _set_run(run_id: str, **values: Any) -> Statement:
    return update("runs", {"updated_at": now_text(), **values}, {"id": run_id})


def raise_budget(run_id: str, amount_micros: int) -> Statement:
    """Raise the limit of a run; one without a limit stays so."""
    return Statement(
        "UPDATE runs SET budget_micros = budget_micros + :amount WHERE id = :id AND budget_micros IS NOT NULL",
        {"amount": amount_micros, "id": run_id},
        expect=None,
    )


def set_wake(run_id: str) -> Statement:
    """Let someone go on with a run that has got what it waits for, or may come to wait for; one that is over stays so.

    Each request has a value of its own, so that whoever has served one does not take back the next.
    """
    sql = "UPDATE runs SET wake = :wake WHERE id = :id AND state IN ('running', 'paused')"
    return Statement(sql, {"id": run_id, "wake": _new_wake()}, expect=None)


_ASK_RESUME = """
UPDATE runs SET wake = CASE WHEN state = 'paused' THEN :wake ELSE wake END,
                due_at = CASE WHEN state = 'pending' THEN NULL ELSE due_at END
WHERE id = :id AND state IN ('pending', 'paused')
"""


def ask_resume(run_id: str) -> Statement:
    """Request that someone goes on with a run now: one that is paused, or whose time has not come.

    One that runs has nothing to be asked for. Kept, the request would overrule the pause after it.
    """
    return Statement(_ASK_RESUME, {"id": run_id, "wake": _new_wake()}, expect=None)


def ask_retry(run_id: str) -> Statement:
    """Request that someone opens a failed run again."""
    sql = "UPDATE runs SET wake = :wake WHERE id = :id AND state = 'failed'"
    return Statement(sql, {"id": run_id, "wake": _new_wake()}, expect=None)


def _new_wake() -> str:
    return f"{now_text()} {uuid.uuid4().hex[:8]}"


def clear_wake(run_id: str, wake: str) -> Statement:
    """Take back the request with this value, which was served; a newer one stays."""
    return update("runs", {"wake": None}, {"id": run_id, "wake": wake}, expect=None)
