"""What a run made, and how it gets to the user: diffs and merge."""

import asyncio
from typing import Annotated, Any

import typer

from holdfast.cli.output import print_json
from holdfast.cli.reading import find_run_id, query
from holdfast.cli.running import JSON, RUN_ID
from holdfast.errors import RunNotInState


def read_diff(run_id: str, phase: str | None) -> str:
    from holdfast.config import load_config
    from holdfast.workspace import diff, open_workspace

    workspace = open_workspace(load_config().data_dir, run_id)
    steps = _snapshots(run_id)
    if phase is None:
        return diff(workspace.repo, workspace.base_commit, steps[-1]["tree"]) if steps else ""
    for before, step in zip([None, *steps], steps, strict=False):
        if step["phase_key"] == phase:
            return diff(workspace.repo, before["tree"] if before else workspace.base_commit, step["tree"])
    raise RunNotInState(f"Phase {phase!r} of run {run_id} has no snapshot yet.")


def _snapshots(run_id: str) -> list[dict[str, Any]]:
    rows = query("SELECT phase_key, tree, snapshot, ended_at FROM run_phases WHERE run_id = :id", {"id": run_id})
    return sorted((row for row in rows if row["tree"]), key=lambda row: row["ended_at"] or "")


def merge(
    run_id: RUN_ID,
    into: Annotated[
        str | None, typer.Option("--into", help="The branch to bring it to; the run's base if not given.")
    ] = None,
    as_json: JSON = False,
) -> None:
    """Bring a run's result to your branch as commits, without holdfast's own files.

    Example: holdfast merge 3f2a
    """
    from holdfast.engine.delivery import merge_run

    merged = asyncio.run(_merge(find_run_id(run_id), into, merge_run))
    if as_json:
        print_json(merged)
    else:
        typer.echo(merged["message"])


async def _merge(run_id: str, into: str | None, merge_run: Any) -> dict[str, Any]:
    from holdfast.cli.opening import open_engine

    async with open_engine() as (_engine, db, config):
        result: dict[str, Any] = await merge_run(db, config, run_id, into=into)
        return result
