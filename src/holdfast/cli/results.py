"""What a run made, and how it gets to the user: diffs and merge."""

from typing import Annotated, Any

import typer

from holdfast.cli.lazy import did_you_mean
from holdfast.cli.options import JSON, RUN_ID, get_user
from holdfast.cli.output import has_colour, plain, print_json, print_text, say
from holdfast.cli.reading import find_run_id
from holdfast.errors import RunNotInState
from holdfast.persistence.plain import query

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
    from holdfast.workspace import diff, open_workspace

    steps = _snapshots(run_id)
    keys = [step["phase_key"] for step in steps]
    if phase is not None and phase not in keys:
        raise RunNotInState(
            f"Phase {phase!r} of run {run_id} has no snapshot.{did_you_mean(phase, keys)}",
            hint=f"There are snapshots of {', '.join(keys) or 'no phase yet'}.",
        )
    if not steps:
        return ""
    workspace = open_workspace(load_config().data_dir, run_id)
    before, after = workspace.base_commit, steps[-1]["tree"]
    if phase is not None:
        place = keys.index(phase)
        before, after = steps[place - 1]["tree"] if place else before, steps[place]["tree"]
    text = diff(workspace.repo, before, after)
    return text if with_artifacts else _without(text, _artifact_paths(run_id))


def _snapshots(run_id: str) -> list[dict[str, Any]]:
    rows = query("SELECT phase_key, tree, ended_at FROM run_phases WHERE run_id = :id", {"id": run_id})
    return sorted((row for row in rows if row["tree"]), key=lambda row: row["ended_at"] or "")


def _artifact_paths(run_id: str) -> set[str]:
    return {row["path"] for row in query("SELECT DISTINCT path FROM artifacts WHERE run_id = :id", {"id": run_id})}


def _without(text: str, paths: set[str]) -> str:
    kept = [part for part in _files(text) if not any(part.startswith(f"diff --git a/{path} ") for path in paths)]
    return "".join(kept)


def _files(text: str) -> list[str]:
    parts = text.split("\ndiff --git ")
    return [part if index == 0 else f"diff --git {part}" for index, part in enumerate(_with_ends(parts))]


def _with_ends(parts: list[str]) -> list[str]:
    return [f"{part}\n" for part in parts[:-1]] + parts[-1:]


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
