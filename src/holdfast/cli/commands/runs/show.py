"""The command runs show: progress, results and cost of one run, and what it waits for."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.commands.budget import find_exhausted
from holdfast.cli.terminal.approval_text import describe_deadline, summarize_approval
from holdfast.cli.terminal.arguments import JSON, RUN_ID, STORE, find_run_id
from holdfast.cli.terminal.output import (
    describe_cost,
    mark,
    next_step,
    paint,
    phase_row,
    plain,
    print_json,
    print_text,
    table,
)
from holdfast.cli.terminal.store import find_provider_waits, find_wait_reason
from holdfast.enums import RunStatus
from holdfast.persistence.flow_listings import find_flow_run
from holdfast.persistence.raw_sql import (
    find_driven,
    find_last_payload,
    get_run,
    read_approvals,
    read_artifacts,
    read_payloads,
    read_phases,
    sum_costs,
    sum_estimated,
    sum_unanswered,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

_LAST_EVENTS = 50  # a pause and what led to it


def show_run(run_id: RUN_ID, as_json: JSON = False, store: STORE = None) -> None:
    """Show one run: progress, results, cost and what it waits for.

    Example: holdfast runs show 3f2a
    """
    full_id = find_run_id(run_id)
    if row := find_flow_run(full_id):
        from holdfast.cli.terminal.flow_runs import read_flow, show_flow, to_json_facts

        view = read_flow(full_id)
        if as_json:
            print_json(to_json_facts(row, view))
        else:
            show_flow(row, view)
        return
    facts = read_run(full_id)
    if as_json:
        print_json(facts)
        return
    state, limit = facts["state"], facts["budget_micros"]
    is_over = RunStatus(state).is_terminal
    money = describe_cost(facts["cost_usd"], facts["simulated_usd"], facts["unsettled_usd"], facts["perhaps_paid_usd"])
    money += f" of ${limit / 1_000_000:.2f}" if limit is not None else ""
    waits = f" ({facts['pause_reason']})" if facts["pause_reason"] else ""
    print_text(f"{mark(state)} {paint(facts['workflow'], 'bold')} · {state}{waits} · {money}")
    print_text(f"  {plain(_describe(facts))}")
    if facts["perhaps_paid_usd"]:
        print_text(f"  Calls that were perhaps paid, and how to settle them: holdfast budget {facts['run_id'][:8]}")
    if facts["estimated_usd"]:
        print_text(f"  ${facts['estimated_usd']:.4f} of it is estimated, from the tokens that a coding agent reported")
    print_text(f"  run {facts['run_id']}\n  on {facts['repo_path']} ({facts['base_branch']})")
    if order := _describe_order(facts):
        print_text(f"  {order}")
    if not is_over and facts["worktree_root"]:
        where = "" if Path(facts["worktree_root"]).is_dir() else ", where it is driven"
        print_text(f"  worktree {facts['worktree_root']}{where}")
    if facts["sandbox"]:
        print_text(f"  {facts['sandbox']}")
    if requirements := facts["requirements_md"].strip():
        print_text(f"  wanted: {plain(requirements.splitlines()[0][:100])}")
    for image in facts["images"]:
        print_text(f"  with {plain(image)}")
    print_text()
    print_text(table([[*phase_row(phase)[:3], _took(phase), phase_row(phase)[3]] for phase in facts["phases"]]))
    if isinstance(facts["error"], dict):
        print_text(plain(f"\n  {facts['error'].get('code')}: {facts['error'].get('message')}"))
        if facts["pause_reason"] in ("provider", "files"):
            print_text(plain(f"  {facts['error'].get('hint')}"))
    if facts["pause_reason"] == "stalled":
        print_text(f"\n  {plain(find_diagnosis(facts['run_id']))}")
    waiting = [item for item in facts["approvals"] if item["state"] == "pending" and not is_over]
    for item in waiting:
        print_text(f"\n◔ Phase {item['phase_key']} waits for you: {summarize_approval(item)}{describe_deadline(item)}")
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


def read_run(run_id: str) -> dict[str, Any]:
    """Return everything a person asks about one run; a phase's `status` is its state as people read it."""
    from holdfast.runtime.run_fold.payload_text import phase_status

    run, artifacts = get_run(run_id), read_artifacts(run_id)
    accepted = {item["phase_key"]: item["path"] for item in artifacts if item["state"] == "accepted"}
    spent = sum_costs(run_id, "state", "is_simulated")
    real = [row for row in spent if not row["is_simulated"]]
    is_driven = run["state"] == RunStatus.RUNNING and bool(find_driven([run_id]))
    return {
        "run_id": run.pop("id"),
        **run,
        "is_driven": is_driven,
        "waiting_for": _find_reason(run_id, run, is_driven=is_driven),
        "sandbox": _describe_sandbox(run_id),
        "images": _describe_images(run_id),
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
        "perhaps_paid_usd": sum_unanswered([run_id]).get(run_id, 0) / 1_000_000,
        "estimated_usd": sum_estimated(run_id) / 1_000_000,
    }


def _find_reason(run_id: str, run: dict[str, Any], *, is_driven: bool) -> str | None:
    """Find why a run that is not over and not paused stands still; `None` if it does not."""
    if run["state"] not in (RunStatus.PENDING, RunStatus.RUNNING):
        return None
    if is_driven:
        return find_provider_waits([run_id]).get(run_id)
    from holdfast.presentation.status import describe_wait

    return describe_wait(run["waits_for"], run["due_at"]) or find_wait_reason(run_id)


def _describe_order(run: dict[str, Any]) -> str:
    """Say what is unusual about when the run is driven, and by whom."""
    parts = {"queue": run["queue"] != "runs", "priority": run["priority"], "schedule": run["schedule"]}
    return " · ".join(f"{name} {run[name]}" for name, is_unusual in parts.items() if is_unusual)


def _describe_sandbox(run_id: str) -> str:
    """Say what contains the commands of a run, by the last process that took it up."""
    from holdfast.presentation.format import describe_sandbox
    from holdfast.runtime.events import EventKind

    kinds = (EventKind.RUN_RESUMED, EventKind.RUN_STARTED)
    payload = next((found for kind in kinds if "sandbox" in (found := find_last_payload(run_id, kind))), {})
    return describe_sandbox(str(payload.get("sandbox", "")), payload.get("unsandboxed_by"))


def _describe_images(run_id: str) -> list[str]:
    from holdfast.images import read_labels
    from holdfast.runtime.events import EventKind

    payloads = read_payloads(run_id, EventKind.RUN_CREATED) + read_payloads(run_id, EventKind.RUN_CHANGED)
    labels = [str(label) for payload in payloads for label in read_labels(payload.get("images"))]
    return list(dict.fromkeys(labels))


def _sum_usd(rows: "Iterable[dict[str, Any]]") -> float:
    return sum(int(row["total"] or 0) for row in rows) / 1_000_000


def _describe(run: dict[str, Any]) -> str:
    """Say what a run is doing and why, in the sentence that the pages say too."""
    from holdfast.presentation.status import OpenApproval, PhaseFacts, RunFacts, describe_run

    open_questions = [item for item in run["approvals"] if item["state"] == "pending"]
    facts = RunFacts(
        **{name: run[name] for name in ("state", "created_at", "updated_at", "started_at", "ended_at")},
        pause_reason=run["pause_reason"],
        waiting_for=run["waiting_for"],
        is_driven=run["is_driven"],
        error=run["error"],
        verdict=run.get("verdict"),
        merged_into=run.get("merged_into"),
        phases=[
            PhaseFacts(**{name: phase[name] for name in ("key", "state", "attempts", "started_at", "error")})
            for phase in run["phases"]
        ],
        questions=[
            OpenApproval(
                **{name: item[name] for name in ("about", "phase_key", "attempt", "requested_at")},
                details=item["shown"] if isinstance(item["shown"], dict) else {},
            )
            for item in open_questions
        ],
    )
    return describe_run(facts).text


def _took(phase: dict[str, Any]) -> str:
    if not phase["started_at"] or not phase["ended_at"]:
        return ""
    from datetime import datetime

    from holdfast.presentation.format import duration

    start, end = (datetime.fromisoformat(phase[name]) for name in ("started_at", "ended_at"))
    return duration((end - start).total_seconds())


def find_diagnosis(run_id: str) -> str:
    """Return why a run that is paused as stalled got nowhere, in the journal's last words on it."""
    from holdfast.cli.terminal.store import open_configured_store

    store = open_configured_store()
    try:
        head = store.read_heads([run_id]).get(run_id, 0)
        reasons = [event.payload.get("stalled") for event in store.list_events(run_id, max(head - _LAST_EVENTS, 0))]
    finally:
        store.close()
    return next((str(text) for text in reversed(reasons) if text), "")
