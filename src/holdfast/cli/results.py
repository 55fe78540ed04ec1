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

    text = read_diff(find_run_id(run_id), phase, with_artifacts=with_artifacts)
    if not text:
        say("No file was changed.")
    if sys.stdout.isatty():
        text = plain(text)
    sys.stdout.write(coloured(text) if has_colour(sys.stdout) else text)


def read_diff(run_id: str, phase: str | None = None, *, with_artifacts: bool = False) -> str:
    """The change as git would print it. Raises `RunNotInState` for a phase that has handed nothing in."""
    from holdfast.config import load_config
    from holdfast.engine.patches import order_trees, read_patch

    rows = query("SELECT phase_key, tree, ended_at FROM run_phases WHERE run_id = :id", {"id": run_id})
    trees = order_trees((row["phase_key"], row["tree"], row["ended_at"]) for row in rows)
    definition = query(_DEFINITION, {"id": run_id})
    made_from = definition[0]["definition"] if definition else None
    try:
        return read_patch(load_config().data_dir, run_id, trees, made_from, phase, with_own=with_artifacts)
    except RunNotInState as error:
        error.hint = did_you_mean(phase or "", list(trees)).strip() or error.hint
        raise


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
    keep: Annotated[bool, typer.Option("--keep", help="Leave the run's worktree and branch where they are.")] = False,
    as_json: JSON = False,
) -> None:
    """Bring a run's result to your branch as commits, without holdfast's own files.

    The worktree and the branch of a run that is over are removed then; runs show and runs diff go on working.

    Example: holdfast merge 3f2a
    """
    import asyncio

    merged = asyncio.run(_merge(find_run_id(run_id), into, keep))
    if as_json:
        print_json(merged)
    else:
        print_text(merged["message"])


async def _merge(run_id: str, into: str | None, keep: bool) -> dict[str, Any]:
    from holdfast.cli.opening import open_engine
    from holdfast.engine.delivery import merge_run

    async with open_engine() as (_engine, db, config):
        return await merge_run(db, config, run_id, into=into, by=get_user(), keeps_worktree=keep)
