"""Where the time of a run went: rows of bars for its phases and, where one is opened, for its calls."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from holdfast.presentation.format import compact, describe_sandbox, duration, money, plural
from holdfast.presentation.status import COMMAND_TOOLS, PhaseFacts, RunFacts, find_pause
from holdfast.presentation.trace import AttemptSpan, AttemptStatus, Milestone, RunTrace, SegmentType
from holdfast.runtime.run_fold.calls import CallSpan, CallStatus, CallType
from holdfast.runtime.run_fold.payload_text import error_text, phase_status
from holdfast.workflow import Phase, WorkflowTemplate

MAX_STEPS = 5000
ALL = "*"
"""Stands for every phase, where some are opened."""
_SPENT = {
    SegmentType.WORKING: "worked",
    SegmentType.WAITING: "waited",
    SegmentType.QUEUED: "queued",
    SegmentType.DOWN: "was down",
}
_STATUSES = {
    "pending": ("idle", "idle", "Not started"),
    "running": ("busy", "busy", "Running"),
    "awaiting_approval": ("waiting", "waiting", "Waiting for approval"),
    "completed": ("good", "good", "Completed"),
    "failed": ("bad", "bad", "Failed"),
    "skipped": ("idle", "idle", "Skipped"),
}
_ATTEMPTS = {
    AttemptStatus.RUNNING: ("busy", "under way"),
    AttemptStatus.COMPLETED: ("good", "completed"),
    AttemptStatus.FAILED: ("bad", "failed"),
    AttemptStatus.CHANGES: ("waiting", "changes requested"),
    AttemptStatus.ABORTED: ("idle", "aborted"),
}
_CALLS = {
    CallStatus.OPEN: ("busy", "under way"),
    CallStatus.DONE: ("good", "done"),
    CallStatus.FAILED: ("bad", "failed"),
    CallStatus.CUT: ("idle", "cut off"),
}

_BROKEN = (AttemptStatus.FAILED, AttemptStatus.CHANGES, AttemptStatus.ABORTED)


@dataclass(frozen=True)
class Status:
    """A tone (good, bad, busy, waiting, idle), its shape and its word."""

    tone: str
    shape: str
    word: str


@dataclass(frozen=True)
class Bar:
    """A piece of time; live while `until` is `None`."""

    type: str
    since: float
    until: float | None
    look: str = ""
    summary: str = ""


@dataclass(frozen=True)
class End:
    ts: float
    type: str


@dataclass(frozen=True)
class AttemptSummary:
    """One attempt at a phase, in words; `seq` is the event that began it."""

    tone: str
    text: str
    calls: str
    took: str
    error: str
    seq: int


@dataclass(frozen=True, kw_only=True)
class Row:
    """`seconds` is the time of the pieces that are closed, `live_since` when the open one began."""

    type: str
    key: str
    label: str
    brief: str = ""
    status: Status | None = None
    seconds: float | None = None
    live_since: float | None = None
    attempts: int = 0
    depth: int = 0
    """How many calls it is inside of: those of a subagent are inside the call that began it."""
    has_steps: bool = False
    is_open: bool = False
    bars: Sequence[Bar] = ()
    ends: Sequence[End] = ()
    summary: str = ""
    title: str = ""
    facts: Sequence[str] = ()
    error: str = ""
    hint: str = ""
    artifact: str = ""
    tries: Sequence[AttemptSummary] = ()
    start_seq: int | None = None
    end_seq: int | None = None


@dataclass(frozen=True)
class Timeline:
    since: float | None
    until: float | None
    rows: Sequence[Row] = ()
    marks: Sequence[Milestone] = ()
    busy: Sequence[tuple[float, float | None]] = field(default=())


@dataclass(frozen=True)
class PhaseDetails:
    """What the rows say of the phases beside their times: by role who fills it, by phase what it handed in."""

    template: WorkflowTemplate | None = None
    workers: Mapping[str, str] = field(default_factory=dict)
    artifacts: Mapping[str, str] = field(default_factory=dict)


def draw_timeline(
    run: RunFacts, trace: RunTrace, details: PhaseDetails, *, opened: Collection[str], now: float
) -> Timeline:
    """Draw a row for each phase, and one for each call of the phases that are opened."""
    planned = {phase.key: phase for phase in details.template.phases} if details.template else {}
    rows: list[Row] = []
    for phase in run.phases:
        is_open = phase.key in opened or ALL in opened
        row = _phase_row(phase, run, trace, planned.get(phase.key), now=now, is_open=is_open)
        worker = details.workers.get(planned[phase.key].role, "") if phase.key in planned else ""
        facts = _list_phase_facts(planned.get(phase.key), worker, trace, phase.key)
        rows.append(replace(row, artifact=details.artifacts.get(phase.key, ""), facts=facts))
        if is_open:
            rows += _call_rows(phase.key, trace, now)
    return Timeline(trace.first_ts, trace.last_ts, rows, trace.milestones, trace.find_busy())


def _phase_row(
    phase: PhaseFacts, run: RunFacts, trace: RunTrace, planned: Phase | None, *, now: float, is_open: bool
) -> Row:
    attempts = trace.attempts_of(phase.key)
    status = _to_status(phase.state, run)
    segments = [(attempt, segment) for attempt in attempts for segment in attempt.segments]
    spent = dict.fromkeys(_SPENT, 0.0)
    # A segment that is still open counts until now in the words, but not in `seconds`: the page adds what has passed
    # since `live_since` by its own clock.
    for _, segment in segments:
        spent[segment.type] += max(0.0, (now if segment.until is None else segment.until) - segment.since)
    live_since = next((segment.since for _, segment in segments if segment.until is None), None)
    total = sum((segment.until or segment.since) - segment.since for _, segment in segments)
    many = [f"{len(attempts)} attempts"] if len(attempts) > 1 else []
    times = [f"{word} {duration(spent[kind])}" for kind, word in _SPENT.items() if spent[kind] > 0.05]
    bars = [
        Bar(segment.type, segment.since, segment.until, attempt.state, f"{segment.type}, attempt {attempt.n}")
        for attempt, segment in segments
    ]
    return Row(
        type="phase",
        key=phase.key,
        label=phase.key,
        status=status,
        seconds=total if attempts else None,
        live_since=live_since,
        attempts=len(attempts),
        has_steps=bool(trace.calls_of(phase.key)),
        is_open=is_open,
        bars=[*_queued_before(attempts, planned, trace), *bars],
        ends=[
            End(attempt.until, attempt.state)
            for attempt in attempts
            if attempt.until is not None and attempt.state in _BROKEN
        ],
        summary=", ".join([f"{phase.key}: {status.word.lower()}", *many, *times]),
        title=planned.title if planned else phase.key,
        error=error_text(phase.error),
        hint=str(phase.error.get("hint") or "") if isinstance(phase.error, dict) else "",
        tries=[_summarize_attempt(attempt, trace) for attempt in attempts],
    )


def _to_status(state: str, run: RunFacts) -> Status:
    """Return the status of a phase; one under way stands still when its run does."""
    match phase_status(state, run.state):
        case "paused":
            return Status("waiting", "waiting", find_pause(run.pause_reason).mark)
        case "stopped":
            return Status("idle", "stopped", "Stopped")
    return Status(*_STATUSES.get(state, ("idle", "idle", state)))


def _queued_before(attempts: Sequence[AttemptSpan], planned: Phase | None, trace: RunTrace) -> list[Bar]:
    """Return the bar from when all that a phase needs was there until it began."""
    if not attempts or planned is None:
        return []
    before = [each[-1].until for need in planned.needs or () if (each := trace.attempts_of(need))]
    ends = [end for end in before if end is not None]
    since = max(ends) if ends else trace.first_ts
    # A bar shorter than this is only the time that the engine takes between two phases.
    if since is None or attempts[0].since - since <= 0.15:
        return []
    return [Bar(SegmentType.QUEUED, since, attempts[0].since, summary="queued")]


def _list_phase_facts(planned: Phase | None, worker: str, trace: RunTrace, key: str) -> list[str]:
    spent = money(trace.money.by_phase[key].micros / 1_000_000) if key in trace.money.by_phase else ""
    risk, asks = (f"risk {planned.risk.value}", planned.requires_approval) if planned else ("", False)
    sandbox = describe_sandbox(trace.progress.sandbox, trace.progress.unsandboxed_by)
    approval = "asks for approval" if asks else ""
    return [fact for fact in (risk, worker, spent, approval, trace.todos.summarize(key), sandbox) if fact]


def _summarize_attempt(attempt: AttemptSpan, trace: RunTrace) -> AttemptSummary:
    is_still = attempt.until is None and not attempt.is_working
    tone, word = ("waiting", "waits") if is_still else _ATTEMPTS[attempt.state]
    spans = trace.calls_of(attempt.phase, attempt.n)
    models = sum(span.type is CallType.MODEL for span in spans)
    calls = f"{plural(models, 'model call')}, {plural(len(spans) - models, 'tool call')}"
    took = "" if attempt.until is None else duration(attempt.until - attempt.since)
    return AttemptSummary(tone, f"Attempt {attempt.n} {word}", calls, took, attempt.error, attempt.seq)


def _call_rows(phase: str, trace: RunTrace, now: float) -> list[Row]:
    calls = _nest(trace.calls_of(phase))
    still_since = trace.last_ts if trace.progress.is_still else None
    inside = _sum_inside(calls)
    rows = []
    for call, depth in calls[:MAX_STEPS]:
        row = replace(_call_row(call, now, still_since=still_since), depth=depth)
        if call.key in inside:
            row = replace(row, has_steps=True, is_open=True, facts=[*row.facts, *inside[call.key]])
        rows.append(row)
    if len(calls) > MAX_STEPS:
        rows.append(Row(type="rest", key=f"{phase}/rest", label=f"{len(calls) - MAX_STEPS} more: see Activity"))
    return rows


def _nest(calls: Sequence[CallSpan]) -> list[tuple[CallSpan, int]]:
    """Put the calls of each subagent behind the call that began it, with how deep they are inside."""
    by_key = {call.key: call for call in calls}
    inside: dict[str, list[CallSpan]] = {}
    for call in calls:
        # A subagent's lane has the key of the call that began it; a turn inside it has it at its beginning.
        lane = call.lane_id
        while lane and lane not in by_key:
            lane = lane.rpartition("/")[0]
        inside.setdefault(lane if lane != call.key else "", []).append(call)
    for each in inside.values():
        each.sort(key=lambda call: call.since)  # one that is recorded when it ends stands where it began
    nested: list[tuple[CallSpan, int]] = []
    pending = [(call, 0) for call in reversed(inside.get("", []))]
    while pending:
        call, depth = pending.pop()
        nested.append((call, depth))
        pending += [(child, depth + 1) for child in reversed(inside.pop(call.key, []))]
    return nested


def _sum_inside(nested: Sequence[tuple[CallSpan, int]]) -> dict[str, list[str]]:
    """Say by the key of each call that began a subagent how many calls that made, and what they cost."""
    sums: dict[str, list[int]] = {}
    above: list[str] = []
    for call, depth in nested:
        del above[depth:]
        for key in above:
            count, micros = sums.get(key, (0, 0))
            sums[key] = [count + 1, micros + call.micros]
        above.append(call.key)
    return {
        key: [f"{plural(count, 'call')} inside", *([money(micros / 1_000_000)] if micros else [])]
        for key, (count, micros) in sums.items()
    }


def _describe_tokens(call: CallSpan) -> str:
    return f"{compact(call.tokens_in)} → {compact(call.tokens_out)}" if call.tokens_in or call.tokens_out else ""


def _call_row(call: CallSpan, now: float, *, still_since: float | None = None) -> Row:
    """Draw a call. Since `still_since` the run is over or waits: a call without an answer is no longer under way."""
    # A crash or an abort leaves calls without an answer. In a run that stands still they are cut, and end where the run
    # stopped; drawn as live they would grow for ever.
    is_live = call.state is CallStatus.OPEN and still_since is None
    until = now if still_since is None else still_since
    until = until if is_live or call.until is None else call.until
    took = until - call.since
    state = call.state if is_live or call.state is not CallStatus.OPEN else CallStatus.CUT
    tone, word = _CALLS[state]
    word = call.outcome or word
    facts = [money(call.micros / 1_000_000)] if call.micros else []
    facts += [plural(call.tries, "try", "tries")] if call.tries > 1 else []
    facts += ["its outcome was unknown after its process had ended"] if call.is_unknown else []
    # What it did to files can be taken back.
    has_run = call.tool in COMMAND_TOOLS and call.outcome != "denied"
    facts += [f"undo: holdfast restore RUN --before {call.start_seq}"] if has_run else []
    look = "unknown" if call.is_unknown else "denied" if call.outcome == "denied" else state
    used = f", {call.tokens_in:,} tokens in, {call.tokens_out:,} out" if _describe_tokens(call) else ""
    end = "unknown" if call.is_unknown else "failed" if call.state is CallStatus.FAILED else ""
    kind = CallType.MODEL if call.type is CallType.MODEL else CallType.TOOL
    return Row(
        type="step",
        key=call.key,
        label=call.label,
        brief=call.brief or _describe_tokens(call),
        status=Status(tone, tone, word),
        seconds=0.0 if is_live else took,
        live_since=call.since if is_live else None,
        attempts=call.tries,
        bars=[Bar(kind, call.since, None if is_live else until, look, f"{call.label}, {word}")],
        ends=[End(call.since if call.until is None else call.until, end)] if end else [],
        summary=f"{call.label}: {word}, {duration(took)}{used}",
        facts=facts,
        error=call.error,
        start_seq=call.start_seq,
        end_seq=call.end_seq,
    )
