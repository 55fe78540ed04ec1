"""The command runs diff: what a run changed in the repository."""

from typing import Annotated

import typer

from holdfast.cli.lazy import did_you_mean
from holdfast.cli.terminal.arguments import RUN_ID, find_run_id
from holdfast.cli.terminal.output import has_colour, paint_diff, plain, say, table
from holdfast.enums import RunPhaseState, RunStatus
from holdfast.errors import RunNotInState
from holdfast.persistence.raw_sql import find_template, get_run, read_phases

_UNFINISHED = (RunPhaseState.RUNNING, RunPhaseState.AWAITING_APPROVAL)


def show_diff(
    run_id: RUN_ID,
    phase: Annotated[str | None, typer.Option("--phase", help="Only what this phase changed.")] = None,
    with_artifacts: Annotated[bool, typer.Option("--artifacts", help="Show holdfast's own files too.")] = False,
    stat: Annotated[bool, typer.Option("--stat", help="Only count the lines of each file.")] = False,
) -> None:
    """Show what a run changed in the repository, in all or in one phase.

    Example: holdfast runs diff 3f2a --phase implement
    """
    import sys

    full_id = find_run_id(run_id)
    text = read_diff(full_id, phase, with_artifacts=with_artifacts)
    for key, state in _find_unfinished_phases(full_id).items():
        if phase in (None, key):
            say(_explain_unfinished(full_id, key, state))
    if not text:
        say("No file was changed.")
    if sys.stdout.isatty():
        text = plain(text)
    if stat:
        text = _summarize(text)
    sys.stdout.write(paint_diff(text) if has_colour(sys.stdout) and not stat else text)
    sys.stdout.flush()
    for line in _read_left_out(full_id):
        say(plain(line))


def _summarize(patch: str) -> str:
    """Count the lines that a patch adds to and removes from each file, and in all."""
    from holdfast.presentation.diff import parse_patch
    from holdfast.presentation.format import plural

    files = parse_patch(patch)
    if not files:
        return ""
    rows = [[f" {file.path}", "binary" if file.is_binary else f"+{file.added} −{file.removed}"] for file in files]
    added, removed = sum(file.added for file in files), sum(file.removed for file in files)
    return f"{table(rows, elastic=0)}\n {plural(len(files), 'file')}, +{added} −{removed}\n"


def read_diff(run_id: str, phase: str | None = None, *, with_artifacts: bool = False) -> str:
    """Return the change as git would print it. Raises `RunNotInState` for a phase that has handed nothing in."""
    from holdfast.config import load_config
    from holdfast.engine.patch import RecordedFiles, read_patch

    trees = _read_trees(run_id)
    try:
        template = find_template(run_id)
        return read_patch(
            load_config().data_dir, RecordedFiles(run_id, trees, template), phase, with_own=with_artifacts
        )
    except RunNotInState as error:
        error.hint = did_you_mean(phase or "", list(trees)).strip() or error.hint
        raise


def _find_unfinished_phases(run_id: str) -> dict[str, str]:
    """Return the phases of an open run that wait or are under way, and their states."""
    if get_run(run_id)["state"] not in (RunStatus.RUNNING, RunStatus.PAUSED):
        return {}
    states = {row["phase_key"]: row["state"] for row in read_phases(run_id)}
    return {key: state for key, state in states.items() if state in _UNFINISHED}


def _read_trees(run_id: str) -> dict[str, str]:
    """Read the files each phase left, in the order of their ends, with what waits or is under way."""
    from holdfast.config import load_config
    from holdfast.engine.patch import find_unfinished, order_trees

    open_phases = _find_unfinished_phases(run_id)
    recorded = _read_recorded_trees(run_id) if open_phases else {}
    done = [row["tree"] for row in read_phases(run_id) if row["tree"]]
    _bring_files(run_id, [*done, *(recorded[key][0] for key in open_phases if key in recorded)])
    unfinished = find_unfinished(load_config().data_dir, run_id, recorded, open_phases)
    return order_trees(((row["phase_key"], row["tree"], row["ended_at"]) for row in read_phases(run_id)), unfinished)


def _bring_files(run_id: str, trees: list[str]) -> None:
    """Take from the database what this machine does not have of a run's files."""
    import asyncio

    from holdfast.config import load_config
    from holdfast.workspace.transfer.packs import has_trees

    config = load_config()
    if not trees or has_trees(config.data_dir, run_id, trees):
        return

    async def bring() -> None:
        from holdfast.engine.run.load import get_run as load_run
        from holdfast.engine.run.local_files import bring_files
        from holdfast.persistence.db import Database

        db = Database(config.database_url)
        try:
            await bring_files(db, config, (await load_run(db, run_id)).run, trees)
        finally:
            await db.dispose()

    asyncio.run(bring())


def _read_recorded_trees(run_id: str) -> dict[str, tuple[str, float]]:
    from holdfast.cli.terminal.store import read_events
    from holdfast.presentation.trace import RunTrace

    return RunTrace.of(read_events(run_id)).trees


def _explain_unfinished(run_id: str, key: str, state: str) -> str:
    if state == RunPhaseState.AWAITING_APPROVAL:
        return f"Phase {key} waits for approval; its change is included. Look: holdfast approvals show {run_id[:8]}"
    return f"Phase {key} is not finished; what it has changed so far is included."


def _read_left_out(run_id: str) -> list[str]:
    """Say what is in the run's worktree and no part of its result, in lines."""
    from holdfast.config import load_config
    from holdfast.engine.patch import describe_left_out, find_left_out

    trees = _read_trees(run_id)
    return describe_left_out(find_left_out(load_config().data_dir, run_id, trees)) if trees else []
