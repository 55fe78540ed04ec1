"""The commands that look: runs list, show, events and diff, and approvals."""

import json
from typing import Annotated, Any

import typer

from holdfast.cli.output import MARKS, print_json, table
from holdfast.cli.reading import find_run_id, query
from holdfast.cli.running import JSON, RUN_ID

runs = typer.Typer(name="runs", help="Look at runs.", no_args_is_help=True, rich_markup_mode=None)


@runs.command("list")
def list_runs(
    state: Annotated[str | None, typer.Option("--state", help="Only runs in this state.")] = None,
    workflow: Annotated[str | None, typer.Option("--workflow", help="Only runs of this workflow.")] = None,
    repo: Annotated[str | None, typer.Option("--repo", help="Only runs whose repository path holds this text.")] = None,
    text: Annotated[str | None, typer.Option("--text", help="Only runs whose title or requirements hold this.")] = None,
    limit: Annotated[int, typer.Option("--limit", help="At most so many.")] = 50,
    as_json: JSON = False,
) -> None:
    """List runs, newest first.

    Example: holdfast runs list --state paused
    """
    conditions = {
        "state = :state": ("state", state),
        "workflow = :workflow": ("workflow", workflow),
        "repo_path LIKE :repo": ("repo", repo and f"%{repo}%"),
        "(title LIKE :text OR requirements_md LIKE :text)": ("text", text and f"%{text}%"),
    }
    given = {sql: pair for sql, pair in conditions.items() if pair[1] is not None}
    where = f"WHERE {' AND '.join(given)}" if given else ""
    found = query(
        f"SELECT id AS run_id, state, workflow, title, repo_path, created_at, updated_at, ended_at, error, "  # noqa: S608
        f"pause_reason, (SELECT COALESCE(SUM(amount_micros), 0) FROM ledger WHERE run_id = runs.id) AS cost_micros "
        f"FROM runs {where} ORDER BY created_at DESC, id DESC LIMIT :limit",
        {**dict(given.values()), "limit": limit},
    )
    for row in found:
        row["cost_usd"] = int(row.pop("cost_micros") or 0) / 1_000_000
    if as_json:
        print_json(found)
        return
    if not found:
        typer.echo("No runs match." if given else "There are no runs yet. Start one: holdfast run WORKFLOW --repo PATH")
        return
    rows = [
        [
            f"{MARKS.get(row['state'], ' ')} {row['state']}",
            row["run_id"][:8],
            row["title"] or row["workflow"],
            row["created_at"][:16].replace("T", " "),
            f"${row['cost_usd']:.4f}",
            _now(row),
        ]
        for row in found
    ]
    typer.echo(table(rows, headings=["STATE", "RUN", "WORKFLOW", "STARTED", "COST", "NOW"]))


def _now(row: dict[str, Any]) -> str:
    if isinstance(row["error"], dict):
        return str(row["error"].get("message", ""))[:60]
    return f"waits: {row['pause_reason']}" if row["pause_reason"] else ""


@runs.command("show")
def show_run(run_id: RUN_ID, as_json: JSON = False) -> None:
    """What a run is doing, made, cost and waits for.

    Example: holdfast runs show 3f2a
    """
    facts = read_run(find_run_id(run_id))
    if as_json:
        print_json(facts)
        return
    typer.echo(f"{MARKS.get(facts['state'], ' ')} {facts['workflow']} · {facts['state']} · ${facts['cost_usd']:.4f}")
    typer.echo(f"  run {facts['run_id']} on {facts['repo_path']} ({facts['base_branch']})")
    if facts["requirements_md"]:
        typer.echo(f"  wanted: {facts['requirements_md'].splitlines()[0][:100]}")
    if facts["error"]:
        typer.echo(f"  {facts['error'].get('code')}: {facts['error'].get('message')}")
    typer.echo("")
    typer.echo(table([_phase_line(phase) for phase in facts["phases"]]))
    for item in facts["approvals"]:
        if item["state"] == "pending":
            typer.echo(f"\n◔ Phase {item['phase_key']} waits for you: holdfast approve {item['approval_id'][:8]}")
    if facts["final_report_path"]:
        typer.echo(f"\nreport: {facts['final_report_path']}")


def _phase_line(phase: dict[str, Any]) -> list[str]:
    tries = f"×{phase['attempts']}" if phase["attempts"] > 1 else ""
    note = phase["error"].get("message", "")[:70] if isinstance(phase["error"], dict) else phase["artifact"] or ""
    return [f"  {MARKS.get(phase['state'], ' ')} {phase['key']}", phase["state"].replace("_", " "), tries, note]


def read_run(run_id: str) -> dict[str, Any]:
    """Everything a person asks about one run."""
    (run,) = query("SELECT * FROM runs WHERE id = :id", {"id": run_id})
    phases = query("SELECT * FROM run_phases WHERE run_id = :id ORDER BY position", {"id": run_id})
    artifacts = query(
        "SELECT phase_key, attempt, turn, path, schema_id, hash, state, findings, created_at FROM artifacts "
        "WHERE run_id = :id ORDER BY created_at, attempt, turn",
        {"id": run_id},
    )
    accepted = {item["phase_key"]: item["path"] for item in artifacts if item["state"] == "accepted"}
    spent = query(
        "SELECT state, SUM(amount_micros) AS total FROM ledger WHERE run_id = :id GROUP BY state", {"id": run_id}
    )
    return {
        "run_id": run.pop("id"),
        **run,
        "phases": [
            {
                "key": row["phase_key"],
                "state": row["state"],
                "attempts": row["attempt"],
                "artifact": accepted.get(row["phase_key"]),
                "started_at": row["started_at"],
                "ended_at": row["ended_at"],
                "error": row["error"],
            }
            for row in phases
        ],
        "artifacts": artifacts,
        "approvals": read_approvals(run_id),
        "cost_usd": sum(int(row["total"] or 0) for row in spent) / 1_000_000,
        "unsettled_usd": sum(int(row["total"] or 0) for row in spent if row["state"] == "reserved") / 1_000_000,
    }


def read_approvals(run_id: str | None = None, *, state: str | None = None) -> list[dict[str, Any]]:
    conditions = {"run_id = :run_id": run_id, "state = :state": state}
    where = " AND ".join(sql for sql, value in conditions.items() if value is not None)
    return query(
        "SELECT id AS approval_id, run_id, phase_key, attempt, state, digest, requested_at, decided_at, action, "  # noqa: S608
        f"comment, decided_by, shown FROM approvals {f'WHERE {where}' if where else ''} ORDER BY requested_at",
        {"run_id": run_id, "state": state},
    )


@runs.command("events")
def list_events(
    run_id: RUN_ID,
    since: Annotated[int, typer.Option("--since", help="Only events with a higher number.")] = 0,
    as_json: JSON = False,
) -> None:
    """The journal of a run; with --json one object a line.

    Example: holdfast runs events 3f2a --since 40 --json
    """
    from holdfast.config import load_config
    from holdfast.runtime.stores import open_store

    full_id = find_run_id(run_id)
    config = load_config()
    store = open_store(str(config.database_path) if config.database_path else config.database_url)
    try:
        for event in store.list_events(full_id, since):
            if as_json:
                typer.echo(json.dumps(event.to_dict(), ensure_ascii=False))
            else:
                told = json.dumps(event.payload, ensure_ascii=False)
                typer.echo(f"{event.seq:>5}  {event.lane_id:<16}  {event.kind:<26}  {told[:100]}")
    finally:
        store.close()


@runs.command("diff")
def show_diff(
    run_id: RUN_ID,
    phase: Annotated[str | None, typer.Option("--phase", help="Only what this phase changed.")] = None,
) -> None:
    """What a run changed in the repository, in all or in one phase.

    Example: holdfast runs diff 3f2a --phase implement
    """
    from holdfast.cli.results import read_diff

    typer.echo(read_diff(find_run_id(run_id), phase), nl=False)


def approvals(as_json: JSON = False) -> None:
    """What waits for a person.

    Example: holdfast approvals
    """
    found = read_approvals(state="pending")
    if as_json:
        print_json(found)
        return
    if not found:
        typer.echo("Nothing waits for you.")
        return
    for row in found:
        shown = row["shown"] if isinstance(row["shown"], dict) else {}
        typer.echo(
            f"◔ {row['approval_id'][:8]}  {row['phase_key']} of {shown.get('workflow', '')}, run {row['run_id'][:8]}"
        )
        files = shown.get("files") or []
        typer.echo(
            f"    {shown.get('artifact', '')} · {len(files)} files, +{shown.get('added', 0)} −{shown.get('removed', 0)}"
        )
        following = ", ".join(shown.get("next") or []) or "the run's end"
        typer.echo(f"    approve → {following}   holdfast approve {row['approval_id'][:8]}")
