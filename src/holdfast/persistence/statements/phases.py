"""Writes of the table `run_phases`."""

from collections.abc import Mapping
from typing import Any

from holdfast.enums import RunPhaseState
from holdfast.persistence.statements.table import insert, now_text, update
from holdfast.runtime.checkpoint.base import Statement


def insert_phase(run_id: str, phase_key: str, position: int) -> Statement:
    """Insert a pending phase of a run."""
    values = {"run_id": run_id, "phase_key": phase_key, "state": RunPhaseState.PENDING, "position": position}
    return insert("run_phases", values)


def start_phase(run_id: str, phase_key: str, *, attempt: int) -> Statement:
    """Record that an attempt of a phase has started."""
    values = {"attempt": attempt, "started_at": now_text(), "ended_at": None, "error": None}
    return _set_phase(run_id, phase_key, state=RunPhaseState.RUNNING, **values)


def await_approval(run_id: str, phase_key: str) -> Statement:
    """Record that the result of a phase waits for a person."""
    return _set_phase(run_id, phase_key, state=RunPhaseState.AWAITING_APPROVAL)


def complete_phase(run_id: str, phase_key: str, *, tree: str, snapshot: str) -> Statement:
    """Record that a phase is completed, and under which tree and ref its files are."""
    return _set_phase(
        run_id, phase_key, state=RunPhaseState.COMPLETED, ended_at=now_text(), tree=tree, snapshot=snapshot
    )


def fail_phase(run_id: str, phase_key: str, error: Mapping[str, Any]) -> Statement:
    """Record that the last attempt of a phase has failed."""
    return _set_phase(run_id, phase_key, state=RunPhaseState.FAILED, ended_at=now_text(), error=error)


def reopen_phase(run_id: str, phase_key: str, *, attempt: int | None = None, comment: str | None = None) -> Statement:
    """Let a phase begin a new attempt after `attempt`, with what the agent is to know about it."""
    values = {"attempt": attempt, "comment": comment}
    changed = {name: value for name, value in values.items() if value is not None}
    return _set_phase(run_id, phase_key, state=RunPhaseState.PENDING, error=None, **changed)


_COPIED_OF_PHASE = ("attempt", "started_at", "ended_at", "tree", "snapshot")


def copy_phase(run_id: str, phase: Any) -> Statement:
    """Record a phase of a fork as completed, as the row `phase` of its original is."""
    values = {name: getattr(phase, name) for name in _COPIED_OF_PHASE}
    return _set_phase(run_id, phase.phase_key, state=RunPhaseState.COMPLETED, **values)


def _set_phase(run_id: str, phase_key: str, **values: Any) -> Statement:
    return update("run_phases", values, {"run_id": run_id, "phase_key": phase_key})
