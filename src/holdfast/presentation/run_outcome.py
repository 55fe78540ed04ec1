"""What a run that is over came to: what its review says, what it changed, which checks ran, and what to do next.

Rule: an agent wrote the review and the names. Whatever has not the expected shape is left out, never guessed.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.enums import RunStatus
from holdfast.presentation.format import plural
from holdfast.presentation.status import Note, RunFacts, describe_run
from holdfast.presentation.trace import RunTrace
from holdfast.presentation.verdict import find_verdict
from holdfast.runtime.run_fold.calls import CallSpan, CallStatus
from holdfast.runtime.run_fold.payload_text import first_line

_MOST_FINDINGS = 50
_MOST_COMMANDS = 40
SEVERITIES = {"critical": "bad", "major": "bad", "minor": "waiting", "note": "idle"}


@dataclass(frozen=True)
class ReviewFinding:
    tone: str
    severity: str
    where: str
    what: str
    remedy: str


@dataclass(frozen=True)
class Review:
    """The verdict with what it is based on; `phase` is whose artifact has it."""

    tone: str
    text: str
    phase: str
    summary: str
    findings: list[ReviewFinding]


@dataclass(frozen=True)
class CommandOutcome:
    """A command that was run to check the work; `of` is the workflow or the agent."""

    tone: str
    text: str
    command: str
    phase: str
    of: str
    start_seq: int


@dataclass(frozen=True)
class FileTotal:
    path: str
    added: int | None
    removed: int | None


@dataclass(frozen=True)
class FollowingStep:
    """Something to do next: the verb, what its button says, what it causes, and why it would be refused."""

    verb: str
    label: str
    text: str
    why: str | None = None


@dataclass(frozen=True)
class MergeTarget:
    """The branch or folder that a result would be merged into, and the host that takes a pull request, if one does."""

    name: str
    host: str = ""
    why: str | None = None
    """Why a pull request would be refused."""


@dataclass(frozen=True, kw_only=True)
class RunOutcome:
    headline: Note
    review: Review | None
    files: list[FileTotal]
    changed: str
    """The files in one line."""
    commands: list[CommandOutcome]
    checked: Note
    """The commands in one line."""
    hint: str
    """What to do about the error, if it failed."""
    steps: list[FollowingStep] = field(default_factory=list)


def describe_outcome(
    run: RunFacts,
    trace: RunTrace,
    report: Mapping[str, Any],
    *,
    review: Review | None,
    refusals: Mapping[str, str | None],
    target: MergeTarget,
) -> RunOutcome:
    """Say what a run came to, and what can be done with it."""
    status = describe_run(run, trace)
    files = _list_files(report.get("files"))
    commands = [_to_outcome(call) for call in trace.calls.by_key.values() if call.tool in ("command", "execute")]
    hint = run.error.get("hint") if isinstance(run.error, Mapping) else ""
    return RunOutcome(
        headline=Note(status.tone, status.text),
        review=review,
        files=files,
        changed=_describe_files(files),
        commands=commands[-_MOST_COMMANDS:],
        checked=_describe_commands(commands),
        hint=hint if isinstance(hint, str) else "",
        steps=_list_steps(run, files, refusals, target),
    )


def read_review(phase_key: str, content: str) -> Review | None:
    """Read the review in the text of an artifact; `None` if it has no verdict."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    verdict = find_verdict(value.get("verdict")) if isinstance(value, dict) and _text(value, "verdict") else None
    if verdict is None:
        return None
    listed = value.get("findings")
    findings = [_to_finding(each) for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    return Review(verdict.tone, verdict.sentence, phase_key, _text(value, "summary"), findings[:_MOST_FINDINGS])


def _text(value: Mapping[str, Any], name: str) -> str:
    found = value.get(name)
    return found if isinstance(found, str) else ""


def _to_finding(facts: Mapping[str, Any]) -> ReviewFinding:
    severity, where, what, remedy = (_text(facts, name) for name in ("severity", "where", "what", "remedy"))
    return ReviewFinding(SEVERITIES.get(severity, "idle"), severity, where, what, remedy)


def _list_files(listed: Any) -> list[FileTotal]:
    found = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    return [FileTotal(_text(each, "path"), each.get("added"), each.get("removed")) for each in found]


def _describe_files(files: Sequence[FileTotal]) -> str:
    if not files:
        return "No file was changed."
    return f"{plural(len(files), 'file')} changed, {describe_lines(files)}"


def describe_lines(files: Iterable[FileTotal]) -> str:
    """Say how many lines came and went."""
    known = list(files)
    return f"+{sum(file.added or 0 for file in known)} −{sum(file.removed or 0 for file in known)}"


def _to_outcome(call: CallSpan) -> CommandOutcome:
    is_good = call.state is CallStatus.DONE
    word = "passed" if is_good else call.outcome or first_line(call.error, 60) or "no outcome"
    of = "agent" if call.tool == "execute" else "set-up" if call.phase == "setup" else "workflow"
    command = call.brief or call.label
    return CommandOutcome("good" if is_good else "bad", word, command, call.phase, of, call.start_seq)


def _describe_commands(commands: Sequence[CommandOutcome]) -> Note:
    """Say how the commands ended, by the last outcome of each: one that failed first and passed then has passed."""
    last = {(each.of, each.command): each for each in commands}
    failed = sum(each.tone == "bad" for each in last.values())
    if not last:
        return Note("idle", "No check or command was run.")
    if not failed:
        return Note("good", f"{plural(len(last), 'command')} run, the last of each passed.")
    return Note("waiting", f"{plural(len(last), 'command')} run, {failed} failed at the last try.")


def _list_steps(
    run: RunFacts, files: Sequence[FileTotal], refusals: Mapping[str, str | None], target: MergeTarget
) -> list[FollowingStep]:
    steps = []
    if run.state == RunStatus.FAILED:
        steps.append(FollowingStep("retry", "Retry…", "Completed phases are kept.", refusals.get("retry")))
    if files:
        text = (
            f"The result is merged into {run.merged_into} already."
            if run.merged_into
            else "You see first what changes."
        )
        again = run.merged_into == target.name
        label = "Merge again…" if again else f"Merge into {first_line(target.name, 40)}…"
        steps.append(FollowingStep("merge", label, text, refusals.get("merge")))
        if target.host:
            text = f"The result is pushed to a branch of its own, and the form of {target.host} asks for its merge."
            why = refusals.get("merge") or target.why
            steps.append(FollowingStep("pull_request", "Open pull request…", text, why))
        steps.append(FollowingStep("patch", "Download patch", "For git apply, anywhere."))
    steps.append(FollowingStep("fork", "Fork…", "A new run from one of its phases.", refusals.get("fork")))
    return steps
