"""The command runs list: runs in a table, newest first."""

from pathlib import Path, PurePath
from typing import Annotated, Any

import typer

from holdfast.cli.lazy import did_you_mean
from holdfast.cli.terminal.arguments import JSON, STORE
from holdfast.cli.terminal.output import MARKS, Cell, plain, print_json, print_text, table
from holdfast.enums import RunStatus
from holdfast.persistence.flow_listings import list_flow_runs
from holdfast.persistence.raw_sql import RunQuery, read_runs
from holdfast.presentation.format import moment
from holdfast.runtime.flow_filter import FlowFilter

_RUN_HEADINGS = ["STATE", "RUN", "REPO", "WHAT", "NOW", "SPENT", "STARTED"]
STATES = [status.value for status in RunStatus]


def list_runs(
    state: Annotated[str | None, typer.Option("--state", help="Only runs in this state.")] = None,
    workflow: Annotated[str | None, typer.Option("--workflow", help="Only runs of this workflow.")] = None,
    repo: Annotated[
        str | None,
        typer.Option("--repo", metavar="PATH", help="Only runs of this repository, or with this in its path."),
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", help="Only runs whose title or requirements contain this.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="List at most this many.")] = 50,
    as_json: JSON = False,
    flow: Annotated[str | None, typer.Option("--flow", help="Only runs of this flow.")] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="NAME[=VALUE]", help="Only flow runs with this tag; more of it: with all."),
    ] = None,
    store: STORE = None,
) -> None:
    """List runs, of workflows and of flows, newest first.

    Example: holdfast runs list --repo . --state paused
    """
    if state is not None and state not in STATES:
        hint = did_you_mean(state, STATES) or f" The states are {', '.join(STATES)}."
        raise typer.BadParameter(f"{state!r} is no state of a run.{hint}", param_hint="--state")
    found = [] if flow or tag else read_runs(_to_query(state, workflow, repo, text), limit=limit)
    _add_waits(found)
    if not (workflow or repo):
        found += list_flow_runs(FlowFilter(state, flow, text, tag or ()), limit=limit)
        found = sorted(found, key=lambda row: str(row["created_at"]), reverse=True)[:limit]
    if as_json:
        print_json(found)
    elif found:
        rows = [_run_row(row) for row in found]
        print_text(table(rows, headings=_RUN_HEADINGS, elastic=(4, 3), optional=2, stacked=3))
        if any(row.get("perhaps_paid_usd") for row in found):
            print_text("? perhaps paid: for calls that ended without an answer. Which: holdfast budget RUN")
    elif state or workflow or repo or text or flow or tag:
        print_text("No run matches.")
    else:
        print_text("There are no runs yet. Start one: holdfast run WORKFLOW --repo PATH")


def _to_query(state: str | None, workflow: str | None, repo: str | None, text: str | None) -> RunQuery:
    """Return which runs the options mean: `--repo` is a folder of a repository, or a part of its path."""
    if repo is None or not Path(repo).is_dir():
        return RunQuery(state, workflow, repo_text=repo, text=text)
    path = Path(repo).resolve()
    root = next((folder for folder in (path, *path.parents) if (folder / ".git").exists()), path)
    return RunQuery(state, workflow, repository=str(root), text=text)


def _add_waits(runs: list[dict[str, Any]]) -> None:
    """Say of each run of a workflow, as `waiting_for`, why it stands still, as far as rows and its journal say it."""
    from holdfast.cli.terminal.store import find_provider_waits, find_still_reasons
    from holdfast.presentation.status import describe_wait

    still = [row for row in runs if row["state"] in (RunStatus.PENDING, RunStatus.RUNNING) and not row["is_driven"]]
    order = {row["run_id"]: describe_wait(row["waits_for"], row["due_at"]) for row in still}
    reasons = find_provider_waits([row["run_id"] for row in runs if row["is_driven"]])
    reasons |= find_still_reasons([run_id for run_id, reason in order.items() if reason is None])
    for row in runs:
        row["waiting_for"] = order.get(row["run_id"]) or reasons.get(row["run_id"])


def _run_row(row: dict[str, Any]) -> list[str | Cell]:
    if row.get("kind") == "flow":
        return _flow_row(row)
    subject = row["title"] or (row["requirements_md"] or "").strip().partition("\n")[0]
    return [
        _state_cell(row),
        row["run_id"][:8],
        PurePath(row["repo_path"]).name,
        f"{row['workflow']}: {subject[:40]}" if subject else row["workflow"],
        _now(row),
        "rehearsal" if row["is_simulated"] else _spent(row),
        moment(row["created_at"]),
    ]


def _spent(row: dict[str, Any]) -> str:
    perhaps = f" + ${row['perhaps_paid_usd']:.4f}?" if row["perhaps_paid_usd"] else ""
    return f"${row['cost_usd'] - row['reserved_usd']:.4f}{perhaps}"


def _flow_row(row: dict[str, Any]) -> list[str | Cell]:
    from holdfast.presentation.flow_run import INTERRUPTED, describe_flow_end, describe_flow_now

    now = plain(describe_flow_now(row) or describe_flow_end(row["state"], row["end"]))
    state = INTERRUPTED if now == INTERRUPTED else row["state"]
    if row["status_text"]:
        now = f"{now}: {plain(row['status_text'])}"
    tags = " ".join(f"{name}={value}" for name, value in row["tags"].items())
    what = plain(f"flow {row['flow']} {tags}".strip())
    return [
        Cell(f"{MARKS.get(state, ' ')} {state}", state),
        row["run_id"],
        "",
        what,
        now,
        "",
        moment(row["created_at"]),
    ]


def _state_cell(row: dict[str, Any]) -> Cell:
    state = "interrupted" if row["state"] == RunStatus.RUNNING and not row["is_driven"] else row["state"]
    return Cell(f"{MARKS.get(state, ' ')} {state}", state)


def _now(row: dict[str, Any]) -> str:
    from holdfast.presentation.status import RunFacts, describe_in_list

    names = ("state", "pause_reason", "is_driven", "error", "verdict", "merged_into", "waiting_for")
    return describe_in_list(RunFacts(**{name: row[name] for name in names}))
