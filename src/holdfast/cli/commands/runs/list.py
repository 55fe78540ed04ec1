"""The commands that look at rows: runs list, runs show and approvals."""

import json
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.lazy import did_you_mean
from holdfast.cli.terminal.arguments import JSON, RUN_ID, find_run_id
from holdfast.cli.terminal.output import (
    MARKS,
    Cell,
    describe_cost,
    mark,
    next_step,
    paint,
    phase_row,
    print_json,
    print_text,
    table,
)
from holdfast.enums import RunStatus
from holdfast.persistence.raw_sql import (
    RunQuery,
    find_driven,
    find_last_payload,
    get_run,
    read_approvals,
    read_artifacts,
    read_open_runs,
    read_phases,
    read_runs,
    sum_costs,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

_RUN_HEADINGS = ["STATE", "RUN", "REPO", "WHAT", "NOW", "SPENT", "STARTED"]
IN_DOUBT = "This call was in flight when its process died. Whether it happened is not known."
STATES = [status.value for status in RunStatus]


def list_runs(
    state: Annotated[str | None, typer.Option("--state", help="Only runs in this state.")] = None,
    workflow: Annotated[str | None, typer.Option("--workflow", help="Only runs of this workflow.")] = None,
    repo: Annotated[
        str | None,
        typer.Option("--repo", metavar="PATH", help="Only runs of this repository, or with this in its path."),
    ] = None,
    text: Annotated[str | None, typer.Option("--text", help="Only runs whose title or requirements hold this.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 50,
    as_json: JSON = False,
) -> None:
    """List runs, newest first.

    Example: holdfast runs list --repo . --state paused
    """
    if state is not None and state not in STATES:
        hint = did_you_mean(state, STATES) or f" The states are {', '.join(STATES)}."
        raise typer.BadParameter(f"{state!r} is no state of a run.{hint}", param_hint="--state")
    found = read_runs(_to_query(state, workflow, repo, text), limit=limit)
    if as_json:
        print_json(found)
    elif found:
        print_text(table([_run_row(row) for row in found], headings=_RUN_HEADINGS, elastic=(4, 3), optional=2))
    elif state or workflow or repo or text:
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


def _run_row(row: dict[str, Any]) -> list[str | Cell]:
    subject = row["title"] or (row["requirements_md"] or "").strip().partition("\n")[0]
    return [
        _state_cell(row),
        row["run_id"][:8],
        PurePath(row["repo_path"]).name,
        f"{row['workflow']}: {subject[:40]}" if subject else row["workflow"],
        _now(row),
        "rehearsal" if row["is_simulated"] else f"${row['cost_usd'] - row['reserved_usd']:.4f}",
        _started(row["created_at"]),
    ]


def _state_cell(row: dict[str, Any]) -> Cell:
    state = "interrupted" if row["state"] == "running" and not row["is_driven"] else row["state"]
    return Cell(f"{MARKS.get(state, ' ')} {state}", state)


def _started(created_at: str) -> str:
    """Format day and minute; in another year the day alone, with its year."""
    is_this_year = created_at[:4] == _now_text()[:4]
    return created_at[5:16].replace("T", " ") if is_this_year else created_at[:10]


def _now(row: dict[str, Any]) -> str:
    from holdfast.presentation.status import RunFacts, describe_in_list

    return describe_in_list(RunFacts(**{name: row[name] for name in ("state", "pause_reason", "is_driven", "error")}))


def _describe(run: dict[str, Any]) -> str:
    """Say what a run is doing and why, in the sentence that the pages say too."""
    from holdfast.presentation.status import PhaseFacts, Question, RunFacts, describe_run

    open_questions = [item for item in run["approvals"] if item["state"] == "pending"]
    facts = RunFacts(
        **{name: run[name] for name in ("state", "created_at", "updated_at", "started_at", "ended_at")},
        pause_reason=run["pause_reason"],
        is_driven=run["is_driven"],
        error=run["error"],
        phases=[
            PhaseFacts(**{name: phase[name] for name in ("key", "state", "attempts", "started_at", "error")})
            for phase in run["phases"]
        ],
        questions=[
            Question(
                **{name: item[name] for name in ("about", "phase_key", "attempt", "requested_at")},
                shown=item["shown"] if isinstance(item["shown"], dict) else {},
            )
            for item in open_questions
        ],
    )
    return describe_run(facts).text


def show_run(run_id: RUN_ID, as_json: JSON = False) -> None:
    """What a run is doing, made, cost and waits for.

    Example: holdfast runs show 3f2a
    """
    facts = read_run(find_run_id(run_id))
    if as_json:
        print_json(facts)
        return
    state, limit = facts["state"], facts["budget_micros"]
    is_over = RunStatus(state).is_terminal
    money = describe_cost(facts["cost_usd"], facts["simulated_usd"], facts["unsettled_usd"])
    money += f" of ${limit / 1_000_000:.2f}" if limit is not None else ""
    waits = f" ({facts['pause_reason']})" if facts["pause_reason"] else ""
    print_text(f"{mark(state)} {paint(facts['workflow'], 'bold')} · {state}{waits} · {money}")
    print_text(f"  {_describe(facts)}")
    print_text(f"  run {facts['run_id']}\n  on {facts['repo_path']} ({facts['base_branch']})")
    if not is_over and facts["worktree_root"]:
        print_text(f"  worktree {facts['worktree_root']}")
    if requirements := facts["requirements_md"].strip():
        print_text(f"  wanted: {requirements.splitlines()[0][:100]}")
    print_text()
    print_text(table([[*phase_row(phase)[:3], _took(phase), phase_row(phase)[3]] for phase in facts["phases"]]))
    if isinstance(facts["error"], dict):
        print_text(f"\n  {facts['error'].get('code')}: {facts['error'].get('message')}")
    if facts["pause_reason"] == "stalled":
        from holdfast.cli.commands.runs.watch import find_diagnosis

        print_text(f"\n  {find_diagnosis(facts['run_id'])}")
    waiting = [item for item in facts["approvals"] if item["state"] == "pending" and not is_over]
    for item in waiting:
        print_text(f"\n◔ Phase {item['phase_key']} waits for you: {_summarize(item)}{describe_deadline(item)}")
        short = item["approval_id"][:8]
        print_text(f"  Look: holdfast approvals show {short}   Approve: holdfast approve {short}")
    exhausted = find_exhausted(facts["run_id"]) if facts["pause_reason"] == "budget" else {}
    following = next_step(
        facts["run_id"], state, facts["pause_reason"], facts["final_report_path"], exhausted=exhausted
    )
    if facts["is_driven"]:
        following = f"Watch it: holdfast runs watch {facts['run_id'][:8]}"
    if following and not waiting:
        print_text(f"\n{following}")


def _summarize(approval: dict[str, Any]) -> str:
    """Say in a few words what an approval is about."""
    details = approval["shown"] if isinstance(approval["shown"], dict) else {}
    if approval["about"] == "outcome":
        return f"what became of a call is not known: {describe_request(details)}"
    if approval["about"] == "tool":
        return describe_request(details)
    return f"{details.get('artifact', '')} · {describe_change(details)}"


def _took(phase: dict[str, Any]) -> str:
    if not phase["started_at"] or not phase["ended_at"]:
        return ""
    from datetime import datetime

    start, end = (datetime.fromisoformat(phase[name]) for name in ("started_at", "ended_at"))
    seconds = round((end - start).total_seconds())
    return f"{seconds // 60}:{seconds % 60:02}"


def read_run(run_id: str) -> dict[str, Any]:
    """Return everything a person asks about one run; a phase's `status` is its state as people read it."""
    from holdfast.presentation.format import phase_status

    run, artifacts = get_run(run_id), read_artifacts(run_id)
    accepted = {item["phase_key"]: item["path"] for item in artifacts if item["state"] == "accepted"}
    spent = sum_costs(run_id, "state", "is_simulated")
    real = [row for row in spent if not row["is_simulated"]]
    is_driven = run["state"] == "running" and bool(find_driven([run_id]))
    return {
        "run_id": run.pop("id"),
        **run,
        "is_driven": is_driven,
        "phases": [
            {
                "key": row["phase_key"],
                "state": row["state"],
                "status": phase_status(row["state"], run["state"], is_driven=is_driven),
                "attempts": row["attempt"],
                "artifact": accepted.get(row["phase_key"]),
                "started_at": row["started_at"],
                "ended_at": row["ended_at"],
                "error": row["error"],
            }
            for row in read_phases(run_id)
        ],
        "artifacts": artifacts,
        "approvals": read_approvals(run_id),
        "cost_usd": _sum_usd(real),
        "simulated_usd": _sum_usd(row for row in spent if row["is_simulated"]),
        "unsettled_usd": _sum_usd(row for row in real if row["state"] == "reserved"),
    }


def _sum_usd(rows: "Iterable[dict[str, Any]]") -> float:
    return sum(int(row["total"] or 0) for row in rows) / 1_000_000


def find_exhausted(run_id: str) -> dict[str, Any]:
    """Return which limit did not allow a run's next call, the last time that happened; empty if it never did."""
    from holdfast.runtime.events import EventKind

    return find_last_payload(run_id, EventKind.BUDGET_EXHAUSTED)


def read_waiting() -> list[dict[str, Any]]:
    """Return the approvals that wait for a person now. Those past their deadline are answered first, durably."""
    found = read_approvals(state="pending", of_open_runs=True)
    if any(row["deadline_at"] and row["deadline_at"] <= _now_text() for row in found):
        import asyncio

        asyncio.run(_decide_overdue())
        found = read_approvals(state="pending", of_open_runs=True)
    return found


def _now_text() -> str:
    from holdfast.persistence.statements import now_text

    return now_text()


async def _decide_overdue() -> None:
    from holdfast.cli.terminal.engine import open_engine

    async with open_engine() as (engine, _db, _config):
        await engine.decide_overdue()


def describe_deadline(row: dict[str, Any]) -> str:
    """Say until when an approval can be answered, and what happens then."""
    if not row["deadline_at"]:
        return ""
    action = row["shown"].get("on_deadline", "reject") if isinstance(row["shown"], dict) else "reject"
    return f" · until {row['deadline_at'][:16].replace('T', ' ')} UTC, then {action}"


def approvals(as_json: JSON = False) -> None:
    """What waits for a person.

    Example: holdfast approvals
    """
    found = read_waiting()
    if as_json:
        print_json(found)
        return
    if not found:
        print_text("Nothing waits for you.")
    places = _read_places() if found else {}
    for row in found:
        details = row["shown"] if isinstance(row["shown"], dict) else {}
        short = paint(row["approval_id"][:8], "bold")
        workflow, repository = places.get(row["run_id"], ("", ""))
        where = f"run {row['run_id'][:8]} in {repository}"
        print_text(f"{mark('paused')} {short}  {row['phase_key']} of {workflow}, {where}")
        since = row["requested_at"][:16].replace("T", " ")
        if row["about"] == "outcome":
            _show_doubt(row, details, since)
            continue
        if details.get("question"):
            print_text(f"    {details['question']}\n    {describe_request(details)}\n    since {since}")
            print_text(f"    holdfast approve {row['approval_id'][:8]}, or holdfast reject {row['approval_id'][:8]}")
            print_text(f"    in full: holdfast approvals show {row['approval_id'][:8]}")
            continue
        when = f"since {since}{describe_deadline(row)}"
        print_text(f"    {details.get('artifact', '')} · {describe_change(details)} · {when}")
        following = ", ".join(details.get("next") or []) or "the run's end"
        print_text(f"    approve leads to {following}: holdfast approve {row['approval_id'][:8]}")
        print_text(f"    in full: holdfast approvals show {row['approval_id'][:8]}")


def _read_places() -> dict[str, tuple[str, str]]:
    """Return the workflow and the repository's name of each run that is not over, by run."""
    return {row["id"]: (row["workflow"], PurePath(row["repo_path"]).name) for row in read_open_runs()}


def _show_doubt(row: dict[str, Any], details: dict[str, Any], since: str) -> None:
    short = row["approval_id"][:8]
    print_text(f"    {IN_DOUBT}\n    {describe_request(details)}\n    since {since}")
    print_text(f"    it happened: holdfast approve {short} --result TEXT")
    print_text(f"    run it again: holdfast approve {short} · fail the phase: holdfast reject {short}")


def describe_change(details: dict[str, Any]) -> str:
    """Count the files and lines that a change touches."""
    files = details.get("files") or []
    return f"{len(files)} file{'s' if len(files) != 1 else ''}, +{details.get('added', 0)} −{details.get('removed', 0)}"


def describe_request(details: dict[str, Any]) -> str:
    """Show the call that a question is about, in a line or two."""
    args = details.get("args") or details.get("argv")
    text = json.dumps(args, ensure_ascii=False) if isinstance(args, dict | list) else str(args or "")
    return f"{details.get('tool', details.get('key', ''))} {text}".strip()
