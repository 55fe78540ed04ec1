"""What a run made, and how it gets to the user: diffs and merge."""

from typing import Annotated, Any

import typer

from holdfast.cli.lazy import did_you_mean
from holdfast.cli.options import JSON, RUN_ID, get_user
from holdfast.cli.output import has_colour, plain, print_json, print_text, say
from holdfast.cli.reading import find_run_id
from holdfast.errors import RunNotInState
from holdfast.persistence.plain import query

_DEFINITION = "SELECT t.definition FROM workflow_templates t JOIN runs r ON r.template_id = t.id WHERE r.id = :id"
_UNFINISHED = (
    "SELECT p.phase_key, p.state FROM run_phases p JOIN runs r ON r.id = p.run_id WHERE p.run_id = :id "
    "AND r.state IN ('running', 'paused') AND p.state IN ('running', 'awaiting_approval') ORDER BY p.position"
)
_DIFF_TONES = {"+": "32", "-": "31", "@": "36"}


def show_diff(
    run_id: RUN_ID,
    phase: Annotated[str | None, typer.Option("--phase", help="Only what this phase changed.")] = None,
    with_artifacts: Annotated[bool, typer.Option("--artifacts", help="Show holdfast's own files too.")] = False,
) -> None:
    """What a run changed in the repository, in all or in one phase.

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
    sys.stdout.write(coloured(text) if has_colour(sys.stdout) else text)


def read_diff(run_id: str, phase: str | None = None, *, with_artifacts: bool = False) -> str:
    """The change as git would print it. Raises `RunNotInState` for a phase that has handed nothing in."""
    from holdfast.config import load_config
    from holdfast.engine.patches import find_unfinished, order_trees, read_patch

    rows = query("SELECT phase_key, tree, ended_at FROM run_phases WHERE run_id = :id", {"id": run_id})
    data_dir, open_phases = load_config().data_dir, _find_unfinished_phases(run_id)
    unfinished = find_unfinished(data_dir, run_id, _read_trees(run_id), open_phases) if open_phases else {}
    trees = order_trees(((row["phase_key"], row["tree"], row["ended_at"]) for row in rows), unfinished)
    definition = query(_DEFINITION, {"id": run_id})
    made_from = definition[0]["definition"] if definition else None
    try:
        return read_patch(data_dir, run_id, trees, made_from, phase, with_own=with_artifacts)
    except RunNotInState as error:
        error.hint = did_you_mean(phase or "", list(trees)).strip() or error.hint
        raise


def _find_unfinished_phases(run_id: str) -> dict[str, str]:
    """Phases of an open run that wait or are under way, and their states."""
    return {row["phase_key"]: row["state"] for row in query(_UNFINISHED, {"id": run_id})}


def _read_trees(run_id: str) -> dict[str, tuple[str, float]]:
    from holdfast.cli.following import open_configured_store
    from holdfast.engine.chronicle import Chronicle

    store = open_configured_store()
    try:
        return Chronicle.of(store.list_events(run_id)).trees
    finally:
        store.close()


def _explain_unfinished(run_id: str, key: str, state: str) -> str:
    if state == "awaiting_approval":
        return f"Phase {key} waits for approval; its change is included. Look: holdfast approvals show {run_id[:8]}"
    return f"Phase {key} is not finished; what it has changed so far is included."


def coloured(text: str) -> str:
    lines = []
    for line in text.splitlines():
        code = "1" if line.startswith(("diff ", "+++", "---")) else _DIFF_TONES.get(line[:1])
        lines.append(f"\x1b[{code}m{line}\x1b[0m\n" if code else f"{line}\n")
    return "".join(lines)


def merge(
    run_id: RUN_ID,
    into: Annotated[
        str | None, typer.Option("--into", metavar="BRANCH", help="The branch to bring it to; else the run's base.")
    ] = None,
    as_json: JSON = False,
) -> None:
    """Bring a run's result to your branch as commits, without holdfast's own files.

    Example: holdfast merge 3f2a
    """
    import asyncio

    merged = asyncio.run(_merge(find_run_id(run_id), into))
    if as_json:
        print_json(merged)
    else:
        print_text(merged["message"])


async def _merge(run_id: str, into: str | None) -> dict[str, Any]:
    from holdfast.cli.opening import open_engine
    from holdfast.engine.delivery import merge_run

    async with open_engine() as (_engine, db, config):
        return await merge_run(db, config, run_id, into=into, by=get_user())
