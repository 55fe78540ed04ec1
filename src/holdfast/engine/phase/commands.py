"""The template's own commands, set-up and checks, as durable steps: started once, found again after a crash."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict, Unpack

from holdfast.engine.history import spool_key
from holdfast.engine.scope import RunScope, utc_now
from holdfast.errors import ChecksFailed, WorkspaceError
from holdfast.runtime.step import TOOL_CALL, Step
from holdfast.workflow import Phase
from holdfast.workspace import CommandState, SpoolOptions, clean_environment, run_spooled, snapshot, stop_spooled

_TIMEOUT_S = 1800.0
_ABORT_GRACE_S = 0.4  # an aborted run does not wait longer for a command that wants to live
_LAST_LINE_CHARS = 200


class CommandOptions(TypedDict, total=False):
    """What a command gets besides; `more` is called after it, and its facts are recorded with the result."""

    env: Mapping[str, str]
    more: Callable[[], dict[str, Any]]


async def run_command(
    scope: RunScope,
    lane_id: str,
    name: str,
    argv: list[str],
    *,
    phase: str | None = None,
    **options: Unpack[CommandOptions],
) -> dict[str, Any]:
    """Run a command of the template as a durable step; one that outlived its engine is waited for, not repeated."""
    key = f"{lane_id}/{name}"

    async def run() -> dict[str, Any]:
        outcome = await run_spooled(
            spool_key(scope.run_id, key),
            argv,
            cwd=scope.place.root,
            spool_dir=scope.spool_dir,
            options=SpoolOptions(
                env=clean_environment({"HOLDFAST_RUN_ID": scope.run_id, **options.get("env", {})}),
                timeout_s=_TIMEOUT_S,
                leave_running=True,
            ),
        )
        if outcome.state is CommandState.LOST:
            raise WorkspaceError(
                f"What became of {' '.join(argv)!r} is not known: its process is gone and left no exit code.",
                hint="Look at the workspace, then retry the run.",
            )
        words = f"exit code {outcome.exit_code}" if outcome.exit_code is not None else outcome.state.value
        more = options.get("more")
        facts = await scope.on_disk(more) if more is not None else {}
        return {"exit_code": outcome.exit_code, "outcome": words, "output": outcome.output, **facts}

    details = {"tool": "command", "argv": argv, "phase": phase}
    step = Step(key, lane_id, has_intent=True, kinds=TOOL_CALL, details=details)
    scope.history.commands.add(key)
    result: dict[str, Any] = await scope.log.step(step, run)
    scope.history.commands.discard(key)
    return result


def check_success(scope: RunScope, result: Mapping[str, Any], what: str) -> None:
    """Raise `ChecksFailed`, with the output, unless the command ended with 0."""
    if result["exit_code"] == 0:
        return
    lines = str(result["output"]).strip().splitlines()
    last_line = f": {lines[-1].strip()[:_LAST_LINE_CHARS]}" if lines else "."
    raise ChecksFailed(
        f"{what} ended with {result['outcome']}{last_line}",
        hint=f"Its output: holdfast runs logs {scope.run_id[:8]}. Correct the cause, then retry the run.",
        output=result["output"],
    )


async def stop_commands(scope: RunScope) -> None:
    """End what a cancelled run still has running; it was left alone so far, since a shutdown is no cancellation."""
    of_template = {spool_key(scope.run_id, key) for key in scope.history.commands}
    await _stop_all(scope, of_template | scope.history.agent_commands, grace_s=_ABORT_GRACE_S)


async def stop_left_commands(scope: RunScope) -> None:
    """End what an attempt that was given up still has running, before another one works on its files."""
    await _stop_all(scope, scope.history.left_commands)
    scope.history.left_commands.clear()


async def _stop_all(scope: RunScope, keys: Iterable[str], **options: float) -> None:
    await asyncio.gather(*(stop_spooled(key, spool_dir=scope.spool_dir, **options) for key in sorted(keys)))


async def save_files(scope: RunScope, phase: Phase, attempt: int, step: Step) -> dict[str, Any]:
    """Save the files under a ref of the attempt; return ref, commit and tree, and what was left out of it."""

    def save() -> dict[str, Any]:
        made = snapshot(scope.place, phase.key, attempt, at=utc_now(), message=phase.title)
        left_out = [{"path": item.path, "reason": item.reason.value} for item in made.left_out]
        return {"ref": made.ref, "commit": made.commit, "tree": made.tree_id, "left_out": left_out}

    facts: dict[str, Any] = await scope.log.step(step, lambda: scope.on_disk(save))
    return facts
