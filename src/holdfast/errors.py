"""Every error holdfast raises on purpose. `code` is stable: programs and scripts match on it.

HoldfastError
├── set-up     ExtraMissing
├── input      RunIdInvalid  PayloadInvalid  ConfigInvalid
│              TemplateInvalid  PersonaInvalid  SchemaInvalid
│              TemplateNotFound  PersonaNotFound  SchemaNotFound
├── store      StoreError: StoreUnsupported  StoreNewer  StoreUnreadable  StoreFull  StoreBusy  StoreUnavailable
│              JournalCorrupt  SequenceConflict  RowRefused
├── owner      RunBusy  LeaseLost  RunWaits
├── order      QueueUnknown  LimitInvalid  ScheduleInvalid  ScheduleNotFound  TimePassed
├── run        RunNotFound  RunAlreadyTerminal  RunNotInState  RunMetadataMissing  TemplateLoadFailed
│              RunPaused  RunCancelled  UnmergedResult  CleanupBusy
├── step       Nondeterminism  StepFailed  StepTimeout  EventTimeout  ToolOutcomeUnknown  ToolDenied
├── person     ApprovalRejected  ApprovalStale  ApprovalNotFound  ApprovalAnswered  SecondPersonNeeded  ConsentRequired
├── access     NotAuthenticated  RoleInsufficient  TooManyAttempts  TokenNotFound  HostNotAllowed  OriginNotAllowed
│              WorkerNotFound  RepositoryNotAllowed  UnsandboxedNotAllowed  InsideAgentCommand
├── request    RequestInvalid  BodyTooLarge  BodyTooSlow  ServerBusy  CursorInvalid  LastEventIdInvalid  RangeInvalid
│              IdempotencyKeyReused  ArtifactNotFound  ReportMissing
└── work       ArtifactMissing  ArtifactInvalid  PhaseTimeout  PersonaIneligible  BudgetExhausted
               BackendUnavailable  AgentFailed  ChecksFailed
               WorkspaceError: RepositoryMissing  BaseBranchMissing  TargetBranchMissing  WorkspaceTooLarge
               WorkspaceConflict  PullRequestFormMissing
"""

from collections.abc import Iterable
from typing import Any, ClassVar

from holdfast.enums import ErrorClass


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a sentence, with a blank before it, that names the known word closest to this one, or nothing."""
    from difflib import get_close_matches

    close = get_close_matches(word, [str(each) for each in known], n=1)  # also of enums
    return f" Did you mean {close[0]!r}?" if close else ""


class HoldfastError(Exception):
    """One sentence on what is the case (`message`), one on what to do (`hint`), and the facts behind them."""

    code: ClassVar[str] = "holdfast_error"
    error_class: ClassVar[ErrorClass] = ErrorClass.FATAL
    default_hint: ClassVar[str] = ""

    def __init__(self, message: str, *, hint: str | None = None, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = self.default_hint if hint is None else hint
        self.facts = facts

    def __str__(self) -> str:
        """Return the message and the hint: a traceback, a log and `print(error)` say what to do, too."""
        return f"{self.message} {self.hint}".rstrip()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle an error as it is: many take arguments that its message alone does not give back."""
        return _restore, (type(self), self.args, self.__dict__)

    def to_dict(self) -> dict[str, Any]:
        return {"code": self.code, "error_class": self.error_class.value, "message": self.message, "hint": self.hint}


def _restore(kind: type[HoldfastError], arguments: tuple[Any, ...], attributes: dict[str, Any]) -> HoldfastError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(attributes)
    return error


class ExtraMissing(HoldfastError, ImportError):
    """A command or module, `what`, needs packages that were not installed; the fact `extra` names them."""

    code = "extra_missing"
    error_class = ErrorClass.HUMAN_REQUIRED

    def __init__(self, what: str, extra: str) -> None:
        hint = f"Install it: pip install 'holdfast[{extra}]'"
        super().__init__(f"{what} needs the extra {extra}.", hint=hint, what=what, extra=extra)


class RunIdInvalid(HoldfastError):
    code = "run_id_invalid"
    default_hint = "Use a string of 1 to 200 characters without NUL; with files also without '/' and '\\'."


class PayloadInvalid(HoldfastError):
    code = "payload_invalid"
    default_hint = "Journal JSON data only: dict with string keys, list, str, int, finite float, bool, None."


class ConfigInvalid(HoldfastError):
    code = "config_invalid"
    error_class = ErrorClass.HUMAN_REQUIRED


class TemplateInvalid(HoldfastError):
    """A workflow cannot be used; the facts `file` and `problems` say where and why."""

    code = "template_invalid"
    error_class = ErrorClass.HUMAN_REQUIRED
    default_hint = "Correct the file; `holdfast explain workflows` lists every field."


class ImageInvalid(HoldfastError):
    code = "image_invalid"
    error_class = ErrorClass.HUMAN_REQUIRED
    default_hint = "Give up to 8 images, PNG, JPEG, GIF or WebP, of at most 5 MB each and 20 MB together."


class ImageUnsupported(HoldfastError):
    """Nobody who would work with an image can see it."""

    code = "image_unsupported"
    error_class = ErrorClass.HUMAN_REQUIRED
    default_hint = "Choose a persona whose model takes images, or leave the images out."


class PersonaInvalid(HoldfastError):
    """A persona cannot be used; the facts `file` and `problems` say where and why."""

    code = "persona_invalid"
    error_class = ErrorClass.HUMAN_REQUIRED
    default_hint = "Correct the file; `holdfast explain personas` lists every field."


class SchemaInvalid(HoldfastError):
    code = "schema_invalid"
    error_class = ErrorClass.HUMAN_REQUIRED
    default_hint = "Correct the file so that it is one JSON Schema of draft 2020-12."


class TemplateNotFound(HoldfastError):
    code = "template_not_found"
    default_hint = "`holdfast workflows list` shows which there are; a path to a file works too."


class PersonaNotFound(HoldfastError):
    code = "persona_not_found"
    default_hint = "`holdfast personas list` shows which there are; a path to a file works too."


class SchemaNotFound(HoldfastError):
    code = "schema_not_found"
    error_class = ErrorClass.HUMAN_REQUIRED
    default_hint = "Put the file into .holdfast/artifacts of the repository: dev/spec@1 is dev/spec@1.json."


class StoreError(HoldfastError):
    """The store did not do what was asked; nothing that was acknowledged is lost."""

    code = "store_error"


class StoreUnsupported(StoreError):
    """A store that works cannot do what is asked of it."""

    code = "store_unsupported"
    default_hint = "Use a SQLite path or a postgresql:// URL."


class StoreNewer(StoreError):
    code = "store_newer"
    error_class = ErrorClass.HUMAN_REQUIRED
    default_hint = "Upgrade holdfast, or open a store that this version has written."


class StoreUnreadable(StoreError):
    code = "store_unreadable"
    error_class = ErrorClass.HUMAN_REQUIRED
    default_hint = "Check that the path names a holdfast store and that this user may read and write it."


class StoreFull(StoreError):
    code = "store_full"
    error_class = ErrorClass.RETRYABLE
    default_hint = "Free some space on the disk that holds the store, then go on; what was acknowledged is safe."


class StoreBusy(StoreError):
    code = "store_busy"
    error_class = ErrorClass.RETRYABLE
    default_hint = "Another process holds the store's write lock for very long; look for a stuck one."


class StoreUnavailable(StoreError):
    code = "store_unavailable"
    error_class = ErrorClass.RETRYABLE
    default_hint = "Check that the database server runs and can be reached, then go on."


class JournalCorrupt(HoldfastError):
    code = "journal_corrupt"
    error_class = ErrorClass.HUMAN_REQUIRED
    default_hint = "Restore this run from a backup; the events before the named position are intact."


class SequenceConflict(HoldfastError):
    code = "sequence_conflict"
    default_hint = "Leave seq at 0 to get the next number, or read the journal again and use a higher one."


class RowRefused(HoldfastError):
    """A row was not as the writer believed, so its append was refused as a whole."""

    code = "row_refused"
    error_class = ErrorClass.RETRYABLE


class RunBusy(HoldfastError):
    code = "run_busy"
    error_class = ErrorClass.RETRYABLE
    default_hint = "Wait for the process that owns the run, or end it."


class RunWaits(HoldfastError):
    """A limit has no place free for the run; it stays as it is."""

    code = "run_waits"
    error_class = ErrorClass.RETRYABLE
    default_hint = "It stays as it is; holdfast serve starts it when there is a place, or resume it later."


class QueueUnknown(HoldfastError):
    code = "queue_unknown"
    default_hint = "The setting `queues` lists them."


class LimitInvalid(HoldfastError):
    code = "limit_invalid"
    default_hint = "`holdfast limits list` shows which there are."


class ScheduleInvalid(HoldfastError):
    code = "schedule_invalid"
    default_hint = "A schedule is a cron line of five fields, such as '30 2 * * 1-5', and a time zone."


class ScheduleNotFound(HoldfastError):
    code = "schedule_not_found"
    default_hint = "`holdfast schedule list` shows which there are."


class TimePassed(HoldfastError):
    code = "time_passed"
    default_hint = "Name a later time, or none to start the run now."


class LeaseLost(HoldfastError):
    code = "lease_lost"
    default_hint = "Another process took the run over; this one must stop. Nothing was written."


class RunNotFound(HoldfastError):
    code = "run_not_found"
    default_hint = "List the runs of this store to see which ones there are."


class RunAlreadyTerminal(HoldfastError):
    code = "run_already_terminal"


class RunNotInState(HoldfastError):
    code = "run_not_in_state"


class UnmergedResult(HoldfastError):
    """A run is not deleted because it holds work that the user has nowhere else."""

    code = "unmerged_result"
    error_class = ErrorClass.HUMAN_REQUIRED
    default_hint = "Merge it first, or say --unmerged to lose it."


class CleanupBusy(HoldfastError):
    code = "cleanup_busy"
    error_class = ErrorClass.RETRYABLE
    default_hint = "Wait until it has ended, then try again."


class RunMetadataMissing(HoldfastError):
    code = "run_metadata_missing"
    error_class = ErrorClass.HUMAN_REQUIRED


class TemplateLoadFailed(HoldfastError):
    code = "template_load_failed"
    error_class = ErrorClass.HUMAN_REQUIRED


class RunPaused(HoldfastError):
    """The run waits for a person and needs no process meanwhile; `run_id` and `key` say for which answer."""

    code = "run_paused"
    error_class = ErrorClass.HUMAN_REQUIRED

    def __init__(self, message: str, *, run_id: str, key: str, hint: str | None = None, **facts: Any) -> None:
        super().__init__(message, hint=hint, run_id=run_id, key=key, **facts)
        self.run_id = run_id
        self.key = key


class RunCancelled(HoldfastError):
    code = "run_cancelled"


class Nondeterminism(HoldfastError):
    code = "nondeterminism"
    error_class = ErrorClass.HUMAN_REQUIRED
    default_hint = (
        "Run the code this run was started with, put the change behind `if await ctx.changed(name)`, or start a new "
        "run; `holdfast flows check` finds such runs before a deploy."
    )


class StepFailed(HoldfastError):
    """A journaled failure whose own exception type cannot be rebuilt in this process."""

    code = "step_failed"


class EventTimeout(HoldfastError, TimeoutError):
    """No event of this name came within `ctx.wait_for`'s time limit. It is recorded: a replay raises it again."""

    code = "event_timeout"
    default_hint = "Send it with send_event(run_id, name, data), or wait longer."


class StepTimeout(HoldfastError, TimeoutError):
    """A call of a step took longer than its `timeout`."""

    code = "step_timeout"
    error_class = ErrorClass.RETRYABLE
    default_hint = "Give the step more time, or retries."


class ToolOutcomeUnknown(HoldfastError):
    code = "tool_outcome_unknown"
    error_class = ErrorClass.HUMAN_REQUIRED


class ToolDenied(HoldfastError):
    """A tool call was refused. The agent gets the reason as the call's result, so nothing here raises it."""

    code = "tool_denied"


class ApprovalRejected(HoldfastError):
    """A person said no (`action` is `reject` or `request_changes`); `comment` says why."""

    code = "approval_rejected"

    def __init__(self, message: str, *, action: str, comment: str = "", hint: str | None = None, **facts: Any) -> None:
        super().__init__(message, hint=hint, action=action, comment=comment, **facts)
        self.action = action
        self.comment = comment


class ApprovalStale(HoldfastError):
    code = "approval_stale"
    error_class = ErrorClass.HUMAN_REQUIRED


class ApprovalNotFound(HoldfastError):
    code = "approval_not_found"


class ApprovalAnswered(ApprovalNotFound):
    """There is nothing left to decide: someone was faster."""

    code = "approval_answered"


class SecondPersonNeeded(HoldfastError):
    """A critical approval needs two different people, and this is the first one again."""

    code = "second_person_needed"
    error_class = ErrorClass.HUMAN_REQUIRED
    default_hint = "Somebody else with the role approver has to approve it too."


class NotAuthenticated(HoldfastError):
    code = "not_authenticated"
    default_hint = "Send `Authorization: Bearer <token>`; `holdfast token create` makes one."


class RoleInsufficient(HoldfastError):
    code = "role_insufficient"
    default_hint = "Ask an admin for a token with a higher role."


class TooManyAttempts(HoldfastError):
    code = "too_many_attempts"
    error_class = ErrorClass.RETRYABLE
    default_hint = "Wait a minute, then try again."


class WorkerNotFound(HoldfastError):
    code = "worker_not_found"
    default_hint = "`holdfast workers` lists them."


class TokenNotFound(HoldfastError):
    code = "token_not_found"
    default_hint = "`holdfast token list` shows which there are."


class HostNotAllowed(HoldfastError):
    code = "host_not_allowed"
    default_hint = "Use the server's own name, or add this one to the setting allowed_hosts."


class OriginNotAllowed(HoldfastError):
    code = "origin_not_allowed"
    default_hint = "Changes are only accepted from the server's own pages and from programs."


class RepositoryNotAllowed(HoldfastError):
    code = "repository_not_allowed"
    default_hint = "Name a folder under the setting workspace_root."


class UnsandboxedNotAllowed(HoldfastError):
    """A request wants a run whose commands are without a sandbox, and the server's settings do not allow that."""

    code = "unsandboxed_not_allowed"
    error_class = ErrorClass.HUMAN_REQUIRED


class InsideAgentCommand(HoldfastError):
    """A command that decides, spends or makes tokens was called by a command that holdfast runs for an agent."""

    code = "inside_agent_command"
    default_hint = "A person does that, outside the run."


class RequestInvalid(HoldfastError):
    code = "request_invalid"


class BodyTooLarge(HoldfastError):
    code = "body_too_large"


class ServerBusy(HoldfastError):
    """The server has as much under way as it can hold; the fact `retry_after_s` says when to come back."""

    code = "server_busy"
    error_class = ErrorClass.RETRYABLE
    default_hint = "Try it again in a moment."


class BodyTooSlow(HoldfastError):
    code = "body_too_slow"
    error_class = ErrorClass.RETRYABLE


class CursorInvalid(HoldfastError):
    code = "cursor_invalid"
    default_hint = "Use next_cursor of the page before, as it is, or leave it out."


class LastEventIdInvalid(HoldfastError):
    code = "last_event_id_invalid"
    default_hint = "It is the number of the last event that was seen, 0 for none."


class RangeInvalid(HoldfastError):
    code = "range_invalid"


class IdempotencyKeyReused(HoldfastError):
    code = "idempotency_key_reused"
    default_hint = "Use a new Idempotency-Key for another request."


class ArtifactNotFound(HoldfastError):
    code = "artifact_not_found"


class ReportMissing(HoldfastError):
    code = "report_missing"
    default_hint = "A run has a report once it is over."


class ConsentRequired(HoldfastError):
    code = "consent_required"
    error_class = ErrorClass.HUMAN_REQUIRED


class ArtifactMissing(HoldfastError):
    code = "artifact_missing"


class ArtifactInvalid(HoldfastError):
    code = "artifact_invalid"


class PhaseTimeout(HoldfastError):
    code = "phase_timeout"
    error_class = ErrorClass.RETRYABLE


class PersonaIneligible(HoldfastError):
    code = "persona_ineligible"
    error_class = ErrorClass.HUMAN_REQUIRED


class BudgetExhausted(HoldfastError):
    """A spending limit is reached. The engine pauses the run instead of failing it, so nothing here raises it."""

    code = "budget_exhausted"
    error_class = ErrorClass.HUMAN_REQUIRED


class BackendUnavailable(HoldfastError):
    code = "backend_unavailable"
    error_class = ErrorClass.RETRYABLE


class AgentFailed(HoldfastError):
    """The agent of a phase ended badly; `output` is the end of what it printed."""

    code = "agent_failed"
    error_class = ErrorClass.RETRYABLE


class ModelCallFailed(HoldfastError):
    """A model did not answer; also the base of the errors that say why. `words` are the provider's own."""

    code = "model_call_failed"
    error_class = ErrorClass.RETRYABLE
    default_hint = "Look at the events of the phase, then retry the run."


class ProviderKeyRefused(ModelCallFailed):
    code = "provider_key_refused"
    error_class = ErrorClass.HUMAN_REQUIRED
    default_hint = "Set a valid key in the variable that the persona's api_key_env names, or in the keyring"


class ProviderAccessDenied(ModelCallFailed):
    code = "provider_access_denied"
    error_class = ErrorClass.HUMAN_REQUIRED
    default_hint = "Give the key's account access to the model, or use another key or model"


class ProviderModelNotFound(ModelCallFailed):
    code = "provider_model_not_found"
    error_class = ErrorClass.HUMAN_REQUIRED
    default_hint = "Check model and base_url of the persona, or load the model on the server"


class ProviderCreditExhausted(ModelCallFailed):
    code = "provider_credit_exhausted"
    error_class = ErrorClass.HUMAN_REQUIRED
    default_hint = "Add credit to the provider's account or raise its limit, or use another key"


class ProviderRateLimited(ModelCallFailed):
    code = "provider_rate_limited"
    default_hint = "Wait as long as the provider says"


class ProviderUnavailable(ModelCallFailed):
    code = "provider_unavailable"
    default_hint = "Wait until the provider answers again"


class ProviderRequestRefused(ModelCallFailed):
    code = "provider_request_refused"
    error_class = ErrorClass.HUMAN_REQUIRED
    default_hint = "Check the persona's model and settings against what the provider says, then retry the run."


class ProviderContextExceeded(ModelCallFailed):
    """What a model is sent is longer than it takes, also after all was summarised or cut that can be."""

    code = "provider_context_exceeded"
    error_class = ErrorClass.HUMAN_REQUIRED
    default_hint = (
        "Shorten the requirements or the persona's instructions and tools, or bind the role to a persona whose model "
        "takes more, then retry the run."
    )


class ProviderAnswerInvalid(ModelCallFailed):
    code = "provider_answer_invalid"
    default_hint = "Retry the run; if it stays so, use another model."


class ModelRefused(ModelCallFailed):
    """The model, or its provider's filter, does not want to answer."""

    code = "model_refused"
    error_class = ErrorClass.HUMAN_REQUIRED
    default_hint = "Change the requirements, or bind the role to another persona, then retry the run."


class ChecksFailed(HoldfastError):
    code = "checks_failed"


class WorkspaceError(HoldfastError):
    """Git or the file system refused; `code` stays one word, `message` says which operation and why."""

    code = "workspace_error"
    error_class = ErrorClass.HUMAN_REQUIRED


class SandboxMissing(WorkspaceError):
    """What would run an agent's code has nothing around it, and nobody chose that."""

    code = "sandbox_missing"
    default_hint = "Install a sandbox (holdfast doctor says how), or retry with --unsandboxed if nothing is at stake."


class RepositoryMissing(WorkspaceError):
    code = "repository_missing"
    default_hint = "Put the repository back at this path and resume; the run's own files are kept as they are."


class BaseBranchMissing(WorkspaceError):
    """The run's base is not in the repository; `branches` names the ones that are."""

    code = "base_branch_missing"

    def __init__(self, message: str, *, branches: tuple[str, ...], hint: str | None = None, **facts: Any) -> None:
        super().__init__(message, hint=hint, branches=branches, **facts)
        self.branches = branches


class TargetBranchMissing(WorkspaceError):
    """The branch that a result should be brought to is not in the repository; `can_be_made` says if it could be."""

    code = "target_branch_missing"

    def __init__(
        self, message: str, *, branch: str, can_be_made: bool = True, hint: str | None = None, **facts: Any
    ) -> None:
        super().__init__(message, hint=hint, branch=branch, **facts)
        self.branch = branch
        self.can_be_made = can_be_made


class PullRequestFormMissing(WorkspaceError):
    """A pull request was asked for, and no remote of the repository is at a host whose form is known."""

    code = "pull_request_form_missing"
    default_hint = "Merge the result into a branch (--into NAME --create), and push that with git."


class WorkspaceTooLarge(WorkspaceError):
    code = "workspace_too_large"
    default_hint = "Make it a git repository, or list what is not needed in a .gitignore file."


class WorkspaceConflict(WorkspaceError):
    """The result does not fit what it should be brought to, in `paths`; nothing was changed."""

    code = "workspace_conflict"

    def __init__(self, message: str, *, paths: tuple[str, ...], hint: str | None = None, **facts: Any) -> None:
        super().__init__(message, hint=hint, paths=paths, **facts)
        self.paths = paths
