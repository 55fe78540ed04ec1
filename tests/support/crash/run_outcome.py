"""What a run has left behind, in a form in which a killed and resumed one equals an undisturbed one."""

import json
from collections import defaultdict
from typing import Any

from tests.support.crash.workflow_child import RUN_ID
from tests.support.engine_world import World

from holdfast.engine.audit import check_database
from holdfast.runtime.events import Event

_SAYS_IT_WAS_KILLED = {"run.resumed", "phase.skipped", "tool.unknown"}
_REQUESTS = {"model.request", "agent.started", "tool.started"}
# What differs from run to run without meaning anything: ids made up on the way, times, and where the test lives.
_VOLATILE = {
    "entry",
    "approval_id",
    "report",
    "root",
    "commit",
    "repo_path",
    "asked",
    "id",
    "took_s",
    "resolved",
    "place",
}
_SIDE_BY_SIDE = ("style", "proof")
"""Each of them may or may not find the other's artifact in the workspace."""


async def read_outcome(world: World) -> dict[str, Any]:
    """Everything that must be the same."""
    assert [str(item) for item in await check_database(world.db)] == []
    return {
        "state": (await world.run_row(RUN_ID)).state,
        "steps": tell_steps(world.events(RUN_ID)),
        "artifacts": sorted(
            [row.phase_key, row.attempt, row.turn, row.state, row.hash] for row in await world.artifacts(RUN_ID)
        ),
        "trees": _read_trees(world),
        "files": read_files(world),
        "effects": (world.folder / "effects").read_text().split(),
        "settled": sum(row.amount_micros for row in await world.ledger(RUN_ID) if row.state == "settled"),
        "report": _report(world),
    }


def tell_steps(events: list[Event], volatile: frozenset[str] = frozenset()) -> dict[str, list[Any]]:
    """What is known of each step; calls of one answer end in any order, what belongs to one is always in the same."""
    steps: dict[str, list[Any]] = defaultdict(list)
    for event in normalise(events):
        step = event.payload.get("key") or event.payload.get("step") or event.lane_id
        is_beside = event.lane_id.startswith(_SIDE_BY_SIDE) or "/turn" in event.lane_id
        left_out = _VOLATILE | volatile | ({"tree", "tree_before"} if is_beside else set())
        steps[step].append([str(event.kind), _without(event.payload, left_out)])
    return dict(sorted(steps.items()))


def read_files(world: World) -> dict[str, str]:
    """What lies in the run's worktree."""
    worktree = world.worktree(RUN_ID)
    return {
        path.relative_to(worktree).as_posix(): path.read_text()
        for path in sorted(worktree.rglob("*"))
        if path.is_file() and path.name != ".git"
    }


def _read_trees(world: World) -> dict[str, list[str]]:
    """What each attempt's snapshot holds, without what a phase beside it may have added."""
    refs = world.git("for-each-ref", "--format=%(refname)", f"refs/holdfast/{RUN_ID}").splitlines()
    trees = {ref: world.git("ls-tree", "-r", ref).splitlines() for ref in refs if "@" not in ref}
    for phase_key in _SIDE_BY_SIDE:
        for ref, listed in trees.items():
            if any(f"/{other}/" in ref for other in _SIDE_BY_SIDE if other != phase_key):
                trees[ref] = [line for line in listed if not line.endswith(f"out/{phase_key}.json")]
    return trees


def normalise(events: list[Event]) -> list[Event]:
    """Without what only tells of kills: resumptions, and requests that were never answered with their reservations."""
    answered = {event.payload["entry"] for event in events if event.kind == "budget.settled"}
    last_request = {event.payload["key"]: event.seq for event in events if event.kind in _REQUESTS}
    return [
        event
        for event in events
        if event.kind not in _SAYS_IT_WAS_KILLED
        and not (event.kind == "budget.reserved" and event.payload["entry"] not in answered)
        and not (event.kind in _REQUESTS and last_request[event.payload["key"]] != event.seq)
    ]


async def read_money(world: World) -> tuple[int, int]:
    """What was settled, and what is reserved for calls that were killed."""
    rows = await world.ledger(RUN_ID)
    settled = sum(row.amount_micros for row in rows if row.state == "settled")
    return settled, sum(row.amount_micros for row in rows if row.state == "reserved")


def _without(value: Any, names: frozenset[str] | set[str]) -> Any:
    if isinstance(value, dict):
        return {name: _without(item, names) for name, item in sorted(value.items()) if name not in names}
    return [_without(item, names) for item in value] if isinstance(value, list) else value


def _report(world: World) -> Any:
    report = json.loads((world.data_dir / "reports" / RUN_ID / "final-report.json").read_text())
    fields = ("state", "summary", "requirements", "approvals", "error", "files")
    phases = [{name: item[name] for name in ("key", "state", "attempts", "artifact")} for item in report["phases"]]
    return {**{name: report[name] for name in fields}, "phases": phases}
