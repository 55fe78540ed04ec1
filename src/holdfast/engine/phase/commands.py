"""The template's own commands, set-up and checks, as durable steps: started once, found again after a crash."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from holdfast.agents.policy.judgement import needs_approval
from holdfast.agents.tools.rules import CommandSpool, ToolCall
from holdfast.agents.tools.shell import ENDED_WITH_LEASE, Shell
from holdfast.engine.history import spool_key
from holdfast.engine.phase.command_shell import CommandKind, CommandShell, open_command_shell
from holdfast.engine.scope import RunScope, utc_now
from holdfast.enums import ApprovalDecisionAction
from holdfast.errors import ChecksFailed, SandboxMissing, StoreUnavailable, WorkspaceError
from holdfast.runtime.outcomes.unknown_outcomes import NotDone, Unclear
from holdfast.runtime.records import Record, StepState
from holdfast.runtime.run_fold.call_line import ENGINE
from holdfast.runtime.step import TOOL_CALL, CancelRun, Step, Stopped
from holdfast.workflow import Phase
from holdfast.workspace import (
    CommandState,
    Enclosed,
    Outcome,
    SpoolOptions,
    clean_environment,
    find_command,
    find_place,
    has_ended_with_lease,
    record_requests,
    remove_spooled,
    run_spooled,
    snapshot,
    stop_spooled,
    stop_with_lease,
)
from holdfast.workspace.snapshot import list_ignored

_TIMEOUT_S = 1800.0
_ABORT_GRACE_S = 0.4  # an aborted run does not wait longer for a command that wants to live
_LAST_LINE_CHARS = 200
_MOST_IGNORED = 20  # the outermost first: a few names say what kind of files they are
IGNORED = "ignored"
_CALL_NAMES = {CommandKind.CHECKS: "check", CommandKind.HOOKS: "hook"}


@dataclass(frozen=True)
class TemplateCommand:
    """A command of the template as a step; `more` is called after it, and its facts are recorded with the result."""

    kind: CommandKind
    lane_id: str
    name: str
    argv: Sequence[str]
    phase: Phase | None = None
    attempt: int = 1
    env: Mapping[str, str] = field(default_factory=dict)
    more: Callable[[], Awaitable[dict[str, Any]]] | None = None

    @property
    def key(self) -> str:
        return f"{self.lane_id}/{self.name}"

    @property
    def line(self) -> str:
        return " ".join(self.argv)


async def run_command(scope: RunScope, command: TemplateCommand) -> dict[str, Any]:
    """Run a command of the template as a durable step; one that outlived its engine is waited for, not repeated.

    One that was in flight in another place is run again if nothing outside of its worktree can have come of it, or if
    it is a set-up, which every place does for itself; otherwise a person is asked.

    Raises `SandboxMissing` where it would run an agent's code, nothing contains it, and no phase is there to ask in;
    and `Suspended` while a person has not said whether it may run, or what became of it.
    """
    key = command.key
    env = {"HOLDFAST_RUN_ID": scope.run_id, **command.env}
    opened = await asyncio.to_thread(open_command_shell, scope, command.kind, env)
    refusal = await _ask(scope, command) if opened.must_ask and not _is_begun(scope, key) else ""

    async def run() -> dict[str, Any]:
        if refusal:
            return {"exit_code": None, "outcome": refusal, "output": "", **opened.facts}
        outcome = await _run_spooled(scope, command, opened.shell)
        key = spool_key(scope.run_id, command.key)
        if outcome.state is CommandState.LOST and has_ended_with_lease(key, spool_dir=scope.spool_dir):
            raise Stopped(StoreUnavailable(ENDED_WITH_LEASE))
        if outcome.state is CommandState.LOST:
            raise WorkspaceError(
                f"What became of {command.line!r} is not known: its process is gone and left no exit code.",
                hint="Look at the workspace, then retry the run.",
            )
        words = f"exit code {outcome.exit_code}" if outcome.exit_code is not None else outcome.state.value
        facts = await command.more() if command.more is not None else {}
        facts = {**opened.facts, **record_requests(outcome.requests), **facts}
        return {"exit_code": outcome.exit_code, "outcome": words, "output": outcome.output, **facts}

    in_flight = _CommandInFlight(scope, command, opened)
    phase = None if command.phase is None else command.phase.key
    place = await asyncio.to_thread(in_flight.find_place)
    details = {"tool": "command", "caller": ENGINE, "argv": list(command.argv), "phase": phase, "place": place}
    step = Step(key, command.lane_id, on_unknown=in_flight.look_for, kinds=TOOL_CALL, details=details)
    scope.raise_if_too_large()  # what an agent's call beside it has changed may be
    scope.history.commands.add(key)
    if command.kind is CommandKind.SETUP and not opened.is_contained:
        scope.history.unfenced.add(spool_key(scope.run_id, key))
    result = await scope.log.step(step, run)
    scope.raise_if_too_large()
    scope.history.commands.discard(key)
    scope.history.unfenced.discard(spool_key(scope.run_id, key))
    return _to_result(result)


class _CommandInFlight:
    """What is known of a command before it is run: whether it was begun, where, and what it could reach there."""

    def __init__(self, scope: RunScope, command: TemplateCommand, opened: CommandShell) -> None:
        self._key = spool_key(scope.run_id, command.key)
        self._record: Record | None = scope.log.records.by_key.get(("step", command.key))
        self._spool = CommandSpool(scope.spool_dir, "rerun" if command.kind is CommandKind.SETUP else "ask")
        self._is_contained = opened.is_contained

    def find_place(self) -> dict[str, Any]:
        """Say where the command is begun; of one that a person is asked about, where it was."""
        record = self._record
        is_in_doubt = record is not None and record.is_in_doubt
        if record is not None and is_in_doubt and self._look_for(record) == "ask":
            return dict(record.place)
        if record is None or is_in_doubt:
            self._spool.announce(self._key)
        facts = {"at": round(time.time(), 3), "is_contained": self._is_contained}
        return {**self._spool.place.record_requests(), **facts}

    async def look_for(self, _key: str) -> NotDone | Unclear:
        assert self._record is not None
        found = await asyncio.to_thread(self._look_for, self._record)
        return Unclear() if found == "ask" else NotDone(found)

    def _look_for(self, record: Record) -> Literal["reattached", "rerun", "ask"]:
        begun = record.place
        if begun and self._spool.place.is_same(begun) and self._spool.is_gone(self._key):
            return "rerun" if begun.get("is_contained") else self._spool.on_lost
        if has_ended_with_lease(self._key, spool_dir=self._spool.spool_dir):
            return self._spool.on_lost
        if self._spool.is_lost(self._key):
            return "reattached"  # to what is left of it, which says that it is lost
        return self._spool.look_for(self._key, begun)


def _to_result(result: Any) -> dict[str, Any]:
    """Return a recorded result; of a command that a person says is done, that it went well."""
    if isinstance(result, dict) and "exit_code" in result:
        return result
    return {"exit_code": 0, "outcome": "exit code 0", "output": "" if result is None else str(result)}


def _is_begun(scope: RunScope, key: str) -> bool:
    """Tell whether a command has its outcome or is in the spool. An intent is not enough: it had another sandbox."""
    record = scope.log.records.by_key.get(("step", key))
    if record is not None and record.state is not StepState.STARTED:
        return True
    return find_command(spool_key(scope.run_id, key), spool_dir=scope.spool_dir) is not None


async def _run_spooled(scope: RunScope, command: TemplateCommand, shell: Shell) -> Outcome:
    key = spool_key(scope.run_id, command.key)
    if has_ended_with_lease(key, spool_dir=scope.spool_dir):
        remove_spooled(key, spool_dir=scope.spool_dir)
    started = find_command(key, spool_dir=scope.spool_dir)
    enclosed = Enclosed(started, None) if started else await asyncio.to_thread(shell.enclose, list(command.argv), key)
    options = SpoolOptions(
        env=clean_environment(shell.env),
        timeout_s=_TIMEOUT_S,
        leave_running=True,
        confinement=enclosed.confinement,  # of a command that was started before its folder has it
        lease=scope.lease if key in scope.history.unfenced else None,
    )
    return await run_spooled(key, enclosed.argv, cwd=scope.place.root, spool_dir=scope.spool_dir, options=options)


async def _ask(scope: RunScope, command: TemplateCommand) -> str:
    """Ask a person whether a command may run an agent's code without a sandbox; return why not, if not."""
    if command.phase is None:
        raise SandboxMissing(
            f"{command.line!r} would run files that an agent has changed, and no sandbox works here to contain it."
        )
    from holdfast.engine.approvals.tool import PhaseToolApprover  # brings the agents' calls with it

    approver = PhaseToolApprover(scope, command.phase, command.attempt)
    what = "a check" if command.kind is CommandKind.CHECKS else "a hook"
    reason = f"no sandbox is in force on this machine, and {what} of the workflow runs code that an agent wrote"
    call = ToolCall(_CALL_NAMES[command.kind], {"argv": list(command.argv)}, is_of_engine=True)
    answer = await approver.ask(command.key, command.lane_id, call, needs_approval("no-sandbox", reason))
    if answer.action is ApprovalDecisionAction.APPROVE:
        return ""
    if answer.action is ApprovalDecisionAction.ABORT:
        raise CancelRun(answer.comment, answer.by)
    return (
        f"{answer.by or 'a person'} not allowing it without a sandbox{f': {answer.comment}' if answer.comment else ''}"
    )


def check_success(scope: RunScope, command: TemplateCommand, result: Mapping[str, Any], what: str) -> None:
    """Raise `ChecksFailed`, with the output, unless the command ended with 0."""
    if result["exit_code"] == 0:
        return
    lines = str(result["output"]).strip().splitlines()
    last_line = f": {lines[-1].strip()[:_LAST_LINE_CHARS]}" if lines else "."
    raise ChecksFailed(
        f"{what} ended with {result['outcome']}{last_line}",
        hint=f"Its output: holdfast runs logs {scope.run_id[:8]}. Correct the cause, then retry the run."
        f"{_describe_containment(command.kind, result)}",
        output=result["output"],
    )


def _describe_containment(kind: CommandKind, result: Mapping[str, Any]) -> str:
    """Say what a command in the sandbox did without, and how it gets that; nothing of one that had all."""
    if result.get("sandbox", "none") == "none":
        return ""
    missing = "" if kind is CommandKind.SETUP else "without the network, "
    return (
        f" It ran in the sandbox, {missing}without Docker, your home folder with its logins and caches, and write "
        f"access to .git. If it needs one of these: `sandbox: {{{kind.value}: false}}` in the workflow, and a new run."
    )


async def stop_commands(scope: RunScope) -> None:
    """End what a cancelled run still has running; it was left alone so far, since a shutdown is no cancellation."""
    of_template = {spool_key(scope.run_id, key) for key in scope.history.commands}
    await _stop_all(scope, of_template | scope.history.agent_commands, grace_s=_ABORT_GRACE_S)


async def stop_unfenced_commands(scope: RunScope) -> None:
    """End what another machine may run again from now on, as a lost command: whoever is next here runs it again too."""
    stops = (stop_with_lease(key, spool_dir=scope.spool_dir, grace_s=_ABORT_GRACE_S) for key in scope.history.unfenced)
    await asyncio.gather(*stops)


async def stop_left_commands(scope: RunScope) -> None:
    """End what an attempt that was given up still has running, before another one works on its files."""
    await _stop_all(scope, scope.history.left_commands)
    scope.history.left_commands.clear()


async def forget_earlier_commands(scope: RunScope) -> None:
    """Forget what this place has of commands in flight, if the run was elsewhere since, or its files were put back
    after a restart of the machine: the files that they worked on are not here.

    A command that is begun again has the same key, and must not be taken for the one that was here before.
    """
    if not scope.has_put_back and scope.history.place in ("", find_place(scope.config.data_dir).data):
        return
    keys = {spool_key(scope.run_id, key) for key in scope.history.commands} | scope.history.agent_commands
    await _stop_all(scope, keys, grace_s=_ABORT_GRACE_S)
    # crash: whoever takes the run up here again forgets them then; that it is here is recorded later.
    await asyncio.gather(*(asyncio.to_thread(remove_spooled, key, spool_dir=scope.spool_dir) for key in keys))


async def _stop_all(scope: RunScope, keys: Iterable[str], **options: float) -> None:
    await asyncio.gather(*(stop_spooled(key, spool_dir=scope.spool_dir, **options) for key in sorted(keys)))


async def save_files(scope: RunScope, phase: Phase, attempt: int, step: Step) -> dict[str, Any]:
    """Save the files under a ref of the attempt; return ref, commit and tree, and what was left out of it."""

    def save() -> dict[str, Any]:
        made = snapshot(scope.place, phase.key, attempt, at=utc_now(), message=phase.title)
        reasons = [(item.path, item.reason.value) for item in made.left_out]
        if scope.packer is not None:  # whoever goes on elsewhere cannot know these
            ignored = sorted(list_ignored(scope.place), key=lambda path: (path.rstrip("/").count("/"), path))
            reasons += [(path, IGNORED) for path in ignored[:_MOST_IGNORED]]
        # A name may be no text, which no journal holds.
        left_out = [{"path": path.encode(errors="replace").decode(), "reason": reason} for path, reason in reasons]
        return {"ref": made.ref, "commit": made.commit, "tree": made.tree_id, "left_out": left_out}

    facts: dict[str, Any] = await scope.log.step(step, lambda: scope.on_disk(save))
    return facts
