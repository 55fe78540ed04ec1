"""Flow runs in the terminal: in a list, one in full, and the questions that they ask."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.cli.terminal.output import Cell, mark, paint, plain, print_text, table
from holdfast.cli.terminal.store import find_wait_reason, read_events
from holdfast.enums import RunStatus
from holdfast.errors import ApprovalNotFound
from holdfast.persistence.flow_listings import find_flow_ids, find_flow_run, list_waiting_flows, to_time
from holdfast.presentation.format import moment

if TYPE_CHECKING:
    from holdfast.presentation.flow_run import FlowView

_MAX_VALUE_CHARS = 60


def read_flow(run_id: str) -> "FlowView":
    """Read a flow run from the configured store, as it is shown."""
    from holdfast.presentation.flow_run import view_flow

    return view_flow(run_id, read_events(run_id))


def to_json_facts(row: dict[str, Any], view: "FlowView") -> dict[str, Any]:
    """Return all of a flow run for programs, times as in other listings."""
    from holdfast.presentation.flow_run import to_wire

    return {**row, **to_wire(view)}


def show_flow(row: dict[str, Any], view: "FlowView") -> None:
    """Print a flow run: its call, its steps in order, what it waits for and how it ended."""
    from holdfast.presentation.flow_run import describe_failure, describe_flow_crashes, describe_flow_now

    is_stopped = row["state"] == RunStatus.RUNNING and not row["is_driven"]
    state = f"{row['state']}{f' ({describe_flow_now(row)})' if is_stopped or row['waits_for'] else ''}"
    print_text(f"{mark(row['state'])} {paint(plain(view.flow), 'bold')} · {plain(state)}")
    is_open = row["state"] in (RunStatus.PENDING, RunStatus.RUNNING)
    if is_open and not row["is_driven"] and (reason := find_wait_reason(row["run_id"])):
        print_text(f"  {plain(reason)}")
    if crashes := describe_flow_crashes(row):
        print_text(f"  {plain(crashes)}")
    arguments = [_short(value) for value in view.args]
    arguments += [f"{name}={_short(value)}" for name, value in dict(view.kwargs).items()]
    print_text(f"  {plain(view.flow)}({', '.join(arguments)})\n  run {row['run_id']}")
    if row["parent_run_id"]:
        print_text(f"  begun by run {row['parent_run_id']}")
    if view.status_text:
        print_text(f"  says “{plain(view.status_text)}”")
    if view.tags:
        print_text(f"  tags {plain(', '.join(f'{name}={value}' for name, value in view.tags.items()))}")
    if view.steps:
        print_text()
        print_text(table([_step_row(step) for step in view.steps], elastic=(3, 1)))
    if view.result is not None:
        print_text(f"\n  returned {_short(view.result)}")
    if view.error:
        print_text(f"\n  {plain(describe_failure(view.error))}")
    if view.cancelled_for:
        print_text(f"\n  {plain(view.cancelled_for)}")
    for question in view.questions:
        print_question(row["run_id"], question.key, question.about, question.show)


def _step_row(step: Any) -> list[str | Cell]:
    took = f"{step.ended_at - step.started_at:.2f} s" if step.started_at and step.ended_at else ""
    from holdfast.runtime.records import StepState

    if step.state == StepState.STARTED and step.type == "timer":
        detail = f"until {moment(to_time(step.wake_at) or '')}"
    elif step.error and step.state in (StepState.FAILED, StepState.WAITING):
        detail = str(step.error.get("message", ""))
    else:
        detail = _short(step.result) if step.result is not None else ""
    if step.child_run_id:
        detail = f"{detail} (run {step.child_run_id})".strip()
    tries = f" (attempt {step.attempts})" if step.attempts > 1 else ""
    return [f"  {step.type}", plain(step.key), f"{step.state}{tries}", plain(detail), took]


def _short(value: Any) -> str:
    text = plain(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= _MAX_VALUE_CHARS else f"{text[: _MAX_VALUE_CHARS - 1]}…"


def print_question(run_id: str, key: str, about: str, show: Any, *, to: Callable[[str], object] = print_text) -> None:
    """Print what a flow asks a person, and the commands that answer."""
    name = f"{run_id}:{key}"
    to(f"\n◔ {plain(key)} of run {run_id} waits for you: {_short(show)}")
    if about == "outcome":
        to(f"  it happened: holdfast approve {name} --result JSON")
        to(f"  run it again: holdfast approve {name} · fail it: holdfast reject {name}")
    else:
        to(f"  Approve: holdfast approve {name}   Reject: holdfast reject {name}")


def read_flow_questions() -> list[dict[str, Any]]:
    """Return what flows of the configured store ask, the oldest first, as approvals are listed."""
    found = []
    for run_id in list_waiting_flows():
        view = read_flow(run_id)
        found += [
            {
                "approval_id": f"{run_id}:{question.key}",
                "kind": "flow",
                "run_id": run_id,
                "flow": view.flow,
                "key": question.key,
                "about": question.about,
                "shown": question.show,
                "requested_at": to_time(question.requested_at),
            }
            for question in view.questions
        ]
    return sorted(found, key=lambda item: str(item["requested_at"]))


def find_flow_question(name: str) -> tuple[str, str] | None:
    """Find the flow run and key that a name means: `RUN:KEY`, or a run with one question. `None`: it is of no flow.

    Raises `ApprovalNotFound` if the run asks nothing, or several things.
    """
    if find_flow_run(name) is None and ":" in name:
        # Both parts may have colons in them.
        places = [(name[:at], name[at + 1 :]) for at in reversed(range(len(name))) if name[at] == ":"]
        return next((place for place in places if find_flow_run(place[0]) is not None), None)
    ids = [name] if find_flow_run(name) is not None else find_flow_ids(name) if len(name) >= 4 else []
    if len(ids) != 1:
        return None
    keys = [question.key for question in read_flow(ids[0]).questions]
    if len(keys) != 1:
        names = ", ".join(f"{ids[0]}:{key}" for key in keys)
        what = f"asks several things: {names}" if keys else "asks nothing"
        raise ApprovalNotFound(f"Run {ids[0]} {what}.", hint="See what waits: holdfast approvals")
    return ids[0], keys[0]


def decide_flow(run_id: str, key: str, action: str, **answer: Any) -> None:
    """Answer a flow's question in the configured store."""
    import asyncio

    from holdfast.cli.terminal.store import name_configured_store
    from holdfast.flows.answers import decide

    asyncio.run(decide(run_id, key, action, store=name_configured_store(), **answer))
