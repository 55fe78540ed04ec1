"""What a run changed, as a diff."""

from typing import Annotated

import typer

from holdfast.cli.lazy import did_you_mean
from holdfast.cli.options import RUN_ID
from holdfast.cli.output import has_colour, plain, say
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

    found = find_run_id(run_id)
    text = read_diff(found, phase, with_artifacts=with_artifacts)
    if not text:
        say("No file was changed.")
    if sys.stdout.isatty():
        text = plain(text)
    sys.stdout.write(coloured(text) if has_colour(sys.stdout) else text)
    sys.stdout.flush()
    for line in _read_left_out(found):
        say(plain(line))


def read_diff(run_id: str, phase: str | None = None, *, with_artifacts: bool = False) -> str:
    """The change as git would print it. Raises `RunNotInState` for a phase that has handed nothing in."""
    from holdfast.config import load_config
    from holdfast.engine.patches import read_patch

    trees = _read_trees(run_id)
    definition = query(_DEFINITION, {"id": run_id})
    made_from = definition[0]["definition"] if definition else None
    try:
        return read_patch(load_config().data_dir, run_id, trees, made_from, phase, with_own=with_artifacts)
    except RunNotInState as error:
        error.hint = did_you_mean(phase or "", list(trees)).strip() or error.hint
        raise


def _read_trees(run_id: str) -> dict[str, str]:
    from holdfast.engine.patches import order_trees

    rows = query("SELECT phase_key, tree, ended_at FROM run_phases WHERE run_id = :id", {"id": run_id})
    return order_trees((row["phase_key"], row["tree"], row["ended_at"]) for row in rows)


def _read_left_out(run_id: str) -> list[str]:
    """Say what is in the run's worktree and no part of its result, in lines."""
    from holdfast.config import load_config
    from holdfast.engine.patches import describe_left_out, find_left_out

    trees = _read_trees(run_id)
    return describe_left_out(find_left_out(load_config().data_dir, run_id, trees)) if trees else []


def coloured(text: str) -> str:
    lines = []
    for line in text.splitlines():
        code = "1" if line.startswith(("diff ", "+++", "---")) else _DIFF_TONES.get(line[:1])
        lines.append(f"\x1b[{code}m{line}\x1b[0m\n" if code else f"{line}\n")
    return "".join(lines)
