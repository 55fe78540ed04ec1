"""What the engine's verbs return: where a run stands now."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from holdfast.enums import RunPhaseState, RunStatus


class RunError(str):
    """Why a run failed: a text ("artifact_missing: …") that also knows its parts."""

    code: str
    message: str
    hint: str

    def __new__(cls, code: str, message: str, hint: str = "") -> "RunError":
        error = super().__new__(cls, f"{code}: {message}")
        error.code, error.message, error.hint = code, message, hint
        return error

    def to_dict(self) -> dict[str, str]:
        return {"code": self.code, "message": self.message, "hint": self.hint}

    @classmethod
    def from_row(cls, stored: Any) -> "RunError | None":
        if not stored:
            return None
        if isinstance(stored, Mapping):
            return cls(str(stored.get("code", "")), str(stored.get("message", "")), str(stored.get("hint", "")))
        return cls("error", str(stored))


@dataclass(frozen=True)
class PhaseResult:
    """One phase: its state, how often it was tried, and the path of its accepted artifact."""

    key: str
    state: RunPhaseState
    attempts: int
    artifact: str | None = None
    error: RunError | None = None


@dataclass(frozen=True)
class RunResult:
    """A run after a verb has done what it could."""

    run_id: UUID
    state: RunStatus
    error: RunError | None
    phases: tuple[PhaseResult, ...]
    final_report_path: str | None
    cost_micros: int = 0
    """Real money alone."""
    waiting_for: str | None = None
    simulated_micros: int = 0
    """What the simulated model made up."""
    exhausted: Mapping[str, Any] = field(default_factory=dict)
    """Of a run that waits for money: which limit was hit, and by how much."""
    perhaps_paid_micros: int = 0
    """The part of the real money that is reserved for calls that ended without an answer."""

    @property
    def cost_usd(self) -> float:
        return self.cost_micros / 1_000_000

    @property
    def perhaps_paid_usd(self) -> float:
        return self.perhaps_paid_micros / 1_000_000

    @property
    def simulated_usd(self) -> float:
        return self.simulated_micros / 1_000_000
