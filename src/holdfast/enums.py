"""The closed sets of words that every layer shares. A member's value is never renamed: it is stored."""

from enum import StrEnum


class RunStatus(StrEnum):
    """Where a run stands."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    EXECUTING = RUNNING
    ABORTED = CANCELLED

    @property
    def is_terminal(self) -> bool:
        return self in (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED)


TERMINAL_STATES = tuple(status.value for status in RunStatus if status.is_terminal)
"""What a row's `state` is once its run is over."""
OPEN_STATES = tuple(status.value for status in RunStatus if not status.is_terminal)
"""And before that."""


class PauseReason(StrEnum):
    """What a run waits for, the most urgent first."""

    OUTCOME = "outcome"
    APPROVAL = "approval"
    CRASHING = "crashing"
    STALLED = "stalled"
    PROVIDER = "provider"
    FILES = "files"
    BUDGET = "budget"
    MESSAGE = "message"
    PERSON = "person"


class RunPhaseState(StrEnum):
    """Where one phase of a run stands."""

    PENDING = "pending"
    RUNNING = "running"
    AWAITING_APPROVAL = "awaiting_approval"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"


class ApprovalDecisionAction(StrEnum):
    """What a person can answer to an approval."""

    APPROVE = "approve"
    REJECT = "reject"
    REQUEST_CHANGES = "request_changes"
    ABORT = "abort"


class RiskLevel(StrEnum):
    """How much a phase can break; above `low` a person is asked."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


class Backend(StrEnum):
    """Who answers a persona's model calls."""

    OPENROUTER = "openrouter"
    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    OLLAMA = "ollama"
    OPENAI_COMPATIBLE = "openai_compatible"
    COMMAND = "command"
    SIMULATED = "simulated"


class Capability(StrEnum):
    """What a role needs and a persona offers."""

    SPEC_WRITE = "spec_write"
    PHASE_PLANNING = "phase_planning"
    CODE_WRITE = "code_write"
    CODE_REVIEW = "code_review"
    TEST_WRITE = "test_write"
    DEBUG = "debug"
    VERIFY = "verify"
    DOC_WRITE = "doc_write"
    SHELL = "shell"
    RESEARCH = "research"


class Role(StrEnum):
    """What someone may do over HTTP; each role includes the ones before it."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    APPROVER = "approver"
    ADMIN = "admin"

    def includes(self, other: "Role") -> bool:
        order = list(Role)
        return order.index(self) >= order.index(other)


class ErrorClass(StrEnum):
    """What an error asks for: a person, another try, or neither helps."""

    HUMAN_REQUIRED = "human_required"
    RETRYABLE = "retryable"
    FATAL = "fatal"
