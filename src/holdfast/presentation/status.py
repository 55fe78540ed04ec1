"""What a run is doing and why, what can be done about it, and what each answer causes: in words, said in one place.

Rule: the words are made from rows and the journal alone, so that whoever asks, wherever, is told the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.enums import TERMINAL_STATES, PauseReason, Role, RunPhaseState, RunStatus
from holdfast.presentation.format import duration, moment, plural, quoted, sentence_case
from holdfast.presentation.verdict import describe_merge, find_verdict
from holdfast.runtime.run_fold.call_line import ask_about_call
from holdfast.runtime.run_fold.payload_text import error_text, first_line

if TYPE_CHECKING:
    from holdfast.presentation.trace import RunTrace
    from holdfast.runtime.run_fold.calls import CallSpan


class Pause(NamedTuple):
    """A reason to wait: as a line in lists, as a mark of a few words, as a sentence, and as a question if it is one."""

    line: str
    mark: str
    sentence: str
    question: str = ""


PAUSES: Mapping[str, Pause] = {
    PauseReason.APPROVAL: Pause("Waits for an approval", "Waiting for you", "It waits for a person's approval."),
    PauseReason.BUDGET: Pause(
        "A budget is used up",
        "Out of budget",
        "A budget is used up. It goes on when the limit is raised.",
        "Out of budget: raise the limit?",
    ),
    PauseReason.PERSON: Pause("A person paused it", "Paused", "A person paused it. Resume it to go on."),
    PauseReason.OUTCOME: Pause(
        "What became of a call is not known",
        "Outcome unknown",
        "A call was in flight when its process ended, and only a person can say what became of it.",
    ),
    PauseReason.CRASHING: Pause(
        "Its processes died again and again",
        "Crashing",
        "Three processes in a row died with it before anything was recorded. Look at it, then resume or abort.",
        "Its processes died again and again: go on?",
    ),
    PauseReason.STALLED: Pause(
        "The agent made no progress",
        "Stalled",
        "The agent made no progress, so it was stopped. Look at its activity, then resume or abort.",
        "The agent made no progress: go on?",
    ),
    PauseReason.PROVIDER: Pause(
        "The model's provider refused or did not answer",
        "Provider",
        "The model's provider refused or did not answer. Nothing is lost; resume it when that is put right.",
        "The model's provider refused or did not answer: go on?",
    ),
    PauseReason.FILES: Pause(
        "The files are too big to be stored in the database",
        "Files too big",
        "The files are too big to be stored in the database. Remove or ignore the biggest, then resume it.",
        "The files are too big to be stored in the database: go on?",
    ),
    PauseReason.MESSAGE: Pause("Waits for a message", "Your turn", "It waits for what you say next."),
}


_SOME_PAUSE = Pause("Waits", "Waiting", "It waits.")
_DONE = ("completed", "skipped")


def find_pause(reason: str | None) -> Pause:
    return PAUSES.get(reason or "", _SOME_PAUSE)


@dataclass(frozen=True, kw_only=True)
class PhaseFacts:
    key: str
    state: str
    attempts: int = 0
    started_at: str | None = None
    error: Any = None


@dataclass(frozen=True, kw_only=True)
class OpenApproval:
    """An open approval. `about` is `phase`, `tool` or `outcome`."""

    about: str
    phase_key: str
    attempt: int
    requested_at: str = ""
    first_by: str = ""
    details: Mapping[str, Any]
    title: str = ""
    risk: str = ""


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    state: str
    created_at: str = ""
    updated_at: str = ""
    started_at: str | None = None
    ended_at: str | None = None
    pause_reason: str | None = None
    waiting_for: str | None = None
    is_driven: bool = True
    """Whether a process works on it, as far as whoever asks can know."""
    stays_paused: bool = False  # until a person acts: nobody has asked for more, and no time is set for it
    is_for_later: bool = False
    error: Any = None
    phases: Sequence[PhaseFacts] = ()
    questions: Sequence[OpenApproval] = ()
    verdict: str | None = None
    """Of its last review, if it is over and had one."""
    merged_into: str | None = None

    def phases_in(self, *states: str) -> list[PhaseFacts]:
        return [phase for phase in self.phases if phase.state in states]


@dataclass(frozen=True)
class Note:
    """A few words with a tone: good, bad, busy, waiting or idle."""

    tone: str
    text: str


@dataclass(frozen=True)
class StatusLine:
    """One sentence with a tone. `since` is when that began, `call_since` when the call under way did."""

    tone: str
    text: str
    since: str | None = None
    call_since: float | None = None


def run_title(*, title: str, requirements_md: str, workflow: str, run_id: str) -> str:
    """Return what a run is called: its title, or else the first line of its requirements."""
    return first_line(title, 120) or first_line(requirements_md, 120) or f"{workflow or 'Run'} {run_id[:8]}"


def describe_wait(waits_for: str | None, due_at: str | None) -> str | None:
    """Say why a run that nobody drives is not started yet: its time has not come, or it waits for a place."""
    if due_at and datetime.fromisoformat(due_at) > datetime.now(UTC):
        return f"Starts at {moment(due_at)}."
    return waits_for


def describe_in_list(run: RunFacts) -> str:
    """Say in one line, for lists, where a run stands or why it does not go on."""
    open_phases = run.phases_in(RunPhaseState.RUNNING, RunPhaseState.AWAITING_APPROVAL)
    match run.state:
        case RunStatus.FAILED:
            return _describe_failure(run)
        case RunStatus.COMPLETED:
            return _describe_completion(run)
        case RunStatus.CANCELLED:
            return first_line(error_text(run.error)) or "Aborted"
        case RunStatus.PAUSED:
            where = (run.phases_in(RunPhaseState.AWAITING_APPROVAL) or open_phases)[:1]
            line = find_pause(run.pause_reason).line
            if run.pause_reason in (PauseReason.PROVIDER, PauseReason.FILES):
                line = first_line(error_text(run.error)) or line
            return f"{line} · {where[0].key}" if where else line
    if run.waiting_for:
        return run.waiting_for
    if run.state == RunStatus.PENDING:
        return "Queued: a server or worker takes it"
    if not run.is_driven:
        return "Interrupted: no process drives it"
    if not open_phases:
        return "Working"
    names = " and ".join(
        phase.key + (f" (attempt {phase.attempts})" if phase.attempts > 1 else "") for phase in open_phases
    )
    return f"{names} · {len(run.phases_in(*_DONE))} of {len(run.phases)} done"


def _describe_completion(run: RunFacts) -> str:
    verdict = find_verdict(run.verdict)
    parts = [
        f"{plural(len(run.phases), 'phase')} done" if run.phases else "Done",
        verdict.mark[0].lower() + verdict.mark[1:] if verdict else "",
        describe_merge(run.merged_into),
    ]
    return " · ".join(filter(None, parts))


def _describe_failure(run: RunFacts) -> str:
    failed = run.phases_in(RunPhaseState.FAILED)[:1]
    error = first_line(error_text(run.error) or (error_text(failed[0].error) if failed else "") or "It failed")
    return f"{failed[0].key}: {error}" if failed and failed[0].key not in error else error


def describe_run(run: RunFacts, trace: "RunTrace | None" = None) -> StatusLine:
    """Write the sentence at the head of a run: what is happening, and why."""
    match run.state:
        case RunStatus.PENDING:
            why = run.waiting_for or "Queued. holdfast serve or a worker takes it, or holdfast resume drives it here."
            return StatusLine("idle", why, run.created_at)
        case RunStatus.RUNNING if not run.is_driven:
            text = "Interrupted: the process that drove it has ended. Nothing is lost"
            then = f". {run.waiting_for}" if run.waiting_for else "; it goes on when it is resumed."
            return StatusLine("waiting", f"{text}{then}", run.updated_at)
        case RunStatus.RUNNING:
            return _describe_work(run, trace)
        case RunStatus.PAUSED:
            return _describe_pause(run, trace)
        case RunStatus.COMPLETED:
            done = f"Completed: {plural(len(run.phases), 'phase')} in {duration(took_s(run))}."
            verdict = find_verdict(run.verdict)
            merged = f" {sentence_case(describe_merge(run.merged_into))}." if run.merged_into else ""
            judged = f" {verdict.sentence}" if verdict else ""
            tone = verdict.tone if verdict and verdict.tone != "idle" else "good"
            return StatusLine(tone, f"{done}{judged}{merged}", run.ended_at)
        case RunStatus.FAILED:
            failed = run.phases_in(RunPhaseState.FAILED)[:1]
            error = error_text(run.error) or (error_text(failed[0].error) if failed else "") or "no reason was recorded"
            what = f"Phase “{failed[0].key}” failed" if failed else "Failed"
            return StatusLine("bad", f"{what}: {first_line(error, 300)}", run.ended_at)
        case RunStatus.CANCELLED:
            by, reason = trace.progress.cancelled if trace else ("", "")
            who = f" by {by}" if by else ""
            return StatusLine("idle", f"Aborted{who}{f': {first_line(reason, 200)}' if reason else '.'}", run.ended_at)
    return StatusLine("idle", run.state, run.updated_at)


def _describe_work(run: RunFacts, trace: "RunTrace | None") -> StatusLine:
    working = run.phases_in(RunPhaseState.RUNNING)
    since = max((phase.started_at for phase in working if phase.started_at), default=None)
    if run.waiting_for:
        return StatusLine("busy", run.waiting_for, since)
    if not working:
        return StatusLine("busy", "Working: the workspace is being made ready.", since)
    attempt = f", attempt {working[0].attempts}" if len(working) == 1 and working[0].attempts > 1 else ""
    call = trace.find_open_call() if trace else None
    text = f"Working on {quoted(phase.key for phase in working)}{attempt}{_describe_call(call)}."
    return StatusLine("busy", text, since, call.since if call else None)


def _describe_call(call: "CallSpan | None") -> str:
    if call is None:
        return ""
    if call.type == "model":
        return ": the model is thinking"
    if call.tool in ("execute", "command") and call.brief:
        return f": “$ {call.brief}”"
    return f": {call.label} {call.brief}".rstrip()


def _describe_pause(run: RunFacts, trace: "RunTrace | None") -> StatusLine:
    question = run.questions[0] if run.questions else None
    if run.pause_reason == PauseReason.APPROVAL and question is None:
        return StatusLine("busy", "Answered. holdfast serve goes on with it, or holdfast resume does.", run.updated_at)
    waiting = (
        [question.phase_key] if question else [phase.key for phase in run.phases_in(RunPhaseState.AWAITING_APPROVAL)]
    )
    of_phase = f" of “{waiting[0]}”" if waiting else ""
    exhausted = trace.money.exhausted if trace else ""
    stalled, by = (trace.progress.stalled, trace.progress.paused_by) if trace else ("", "")
    texts: dict[str, str] = {
        PauseReason.APPROVAL: f"Waiting for a person: m{ask_about_call(question.details)[1:]}"
        if question is not None and question.about == "tool"
        else f"Waiting for approval{of_phase}.",
        PauseReason.BUDGET: exhausted,
        PauseReason.PERSON: f"Paused by {by}. Resume it to go on." if by else "",
        PauseReason.STALLED: stalled,
        **dict.fromkeys((PauseReason.PROVIDER, PauseReason.FILES), first_line(error_text(run.error), 300)),
    }
    text = texts.get(run.pause_reason or "") or find_pause(run.pause_reason).sentence
    return StatusLine("waiting", text, question.requested_at if question else run.updated_at)


def took_s(run: RunFacts) -> float | None:
    """Return the seconds from the start to the end; `None` while there is none."""
    start, end = run.started_at or run.created_at, run.ended_at or run.updated_at
    if not start or not end:
        return None
    return max(0.0, (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds())


def find_refusals(run: RunFacts, role: Role) -> dict[str, str | None]:
    """Say why each verb would be refused now; `None` where it would not be. The verb itself has the last word."""
    too_low = None if role.includes(Role.OPERATOR) else f"This needs the role operator; you are {role.value}."
    word = "aborted" if run.state == RunStatus.CANCELLED else run.state
    over = f"The run is {word}." if run.state in TERMINAL_STATES else None
    not_resumed: dict[str, str | None] = {
        RunStatus.FAILED: "It failed: retry it instead.",
        RunStatus.RUNNING: "It is running.",
        RunStatus.PENDING: None if run.is_for_later else "It is queued and starts by itself.",
        RunStatus.PAUSED: "It waits for a decision, and goes on by itself after it." if run.questions else None,
    }
    return {
        "resume": too_low or not_resumed.get(run.state, over),
        "pause": too_low or over or ("It is paused already." if run.stays_paused else None),
        "retry": too_low or (None if run.state == RunStatus.FAILED else "Only a failed run is retried."),
        "abort": too_low or over,
        "fork": too_low,
        "merge": too_low or _refuse_merge(run),
        "top_up": too_low or over,
    }


def _refuse_merge(run: RunFacts) -> str | None:
    if run.state not in TERMINAL_STATES and not (run.state == RunStatus.PAUSED and not run.questions):
        return "It is merged when it is over or waits for you."
    return None if run.phases_in(*_DONE) else "No phase is completed: there is nothing to merge."


def describe_question(question: OpenApproval) -> str:
    match question.about:
        case "tool":
            return ask_about_call(question.details)
        case "outcome":
            return f"What became of a call in “{question.phase_key}”?"
    again = f", attempt {question.attempt}" if question.attempt > 1 else ""
    return f"Approve “{question.title or question.phase_key}”{again}?"


def explain_question(question: OpenApproval) -> str:
    """Say why a person is asked, as it follows "because"."""
    details = question.details
    if question.about == "outcome":
        return f"its process ended during the call{describe_start(details)}, and nothing was recorded of its outcome"
    if question.about == "tool":
        policy = details.get("policy")
        policy = policy if isinstance(policy, dict) else {}
        rule = f" (rule {policy['rule']})" if policy.get("rule") else ""
        return f"{policy.get('reason') or 'the tool policy says so'}{rule}"
    return str(
        details.get("reason") or (f"the phase has risk {question.risk}" if question.risk else "the workflow says so")
    )


def describe_start(details: Mapping[str, Any]) -> str:
    """Say on which machine a command was begun, and when: it may still be at work there."""
    place = details.get("place")
    if not isinstance(place, dict) or not place.get("host") or not isinstance(place.get("at"), int | float):
        return ""
    at = datetime.fromtimestamp(place["at"], UTC).isoformat()
    return f", begun on {place['host']} at {moment(at)}"


COMMAND_TOOLS = ("execute", "agent")
_RESTORABLE = "The workspace's files are recorded before it runs; holdfast restore puts them back"


def list_question_facts(question: OpenApproval) -> list[str]:
    """List what else to know of a question, in a few words each."""
    details = question.details
    files = details.get("files")
    count = len(files) if isinstance(files, list) else 0
    changed = f"{plural(count, 'file')} changed, +{details.get('added') or 0:,} −{details.get('removed') or 0:,}"
    return [
        f"Phase {question.phase_key}, attempt {question.attempt}",
        *([f"Risk {question.risk}"] if question.risk else []),
        *([changed] if isinstance(files, list) else []),
        *([_RESTORABLE] if question.about == "tool" and details.get("tool") in COMMAND_TOOLS else []),
    ]


def describe_choices(question: OpenApproval) -> dict[str, tuple[str, str]]:
    """Return by action what its button is called and what it causes, in the order they are offered."""
    key = question.phase_key
    if question.about == "tool":
        return {
            "approve": (
                "Allow this call",
                f"The agent calls {question.details.get('tool')} with exactly these arguments.",
            ),
            "reject": ("Reject", "The call is refused; the agent is told so and goes on without it."),
        }
    if question.about == "outcome":
        return {
            "approve": ("Make the call again", "The call is made again. If it had worked, its effect happens twice."),
            "reject": ("Fail the phase", f"Phase “{key}” fails; the run can be retried."),
            "result": ("Give the result", "It had worked: the run goes on with the result you give."),
        }
    following = [str(name) for name in question.details.get("next") or ()]
    starts = f"phase{'s' if len(following) > 1 else ''} {quoted(following)} start{'' if len(following) > 1 else 's'}."
    then = starts if following else "the run completes."
    is_second_needed = question.risk == "critical" and not question.first_by
    approve = f"A second person must approve too; then {then}" if is_second_needed else sentence_case(then)
    again = f"“{key}” runs again with your comment, as attempt {question.attempt + 1}."
    return {
        "approve": ("Approve", approve),
        "request_changes": ("Request changes", again),
        "reject": ("Reject", f"Phase “{key}” and the run fail. It can be retried or forked."),
    }
