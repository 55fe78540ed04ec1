"""A run of a workflow that an earlier version recorded, and that was killed in the middle, is finished by this one."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest
from tests.support.engine_world import CATALOG, personas
from tests.support.recorded_run import JOURNALS, unpack

from holdfast.artifact_schema import ArtifactSchemaRegistry
from holdfast.binding import BackendAvailability
from holdfast.config import load_config
from holdfast.engine import WorkflowEngine
from holdfast.enums import Backend, RunPhaseState, RunStatus
from holdfast.persistence.db import Database
from holdfast.persistence.runs import find_run, read_approvals
from holdfast.runtime.events import Event, EventKind

RUN_ID = "5eed0000-0000-4000-8000-000000000001"


def count(events: list[Event], kind: EventKind, lane: str) -> int:
    return sum(event.kind is kind and event.lane_id.startswith(lane) for event in events)


async def test_a_run_of_before_the_layout_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpack(JOURNALS / "before-layout" / "workflow-run.tar.xz", tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))  # the workflow's commands write what they did there
    db = Database(f"sqlite+aiosqlite:///{tmp_path / 'holdfast.db'}")
    await db.init_schema()
    engine = WorkflowEngine(
        db=db,
        config=load_config(data_dir=tmp_path / "data"),
        persona_pool=personas(),
        artifact_registry=ArtifactSchemaRegistry(roots=[CATALOG / "artifacts"]),
        available_backends=BackendAvailability(available_backends=frozenset({Backend.SIMULATED})),
    )
    recorded = list(db.store.list_events(RUN_ID))

    waiting = await engine.resume(RUN_ID)
    assert waiting.state is RunStatus.PAUSED
    (approval,) = await read_approvals(db, run_id=RUN_ID, state="pending")
    await engine.decide(RUN_ID, approval.id, "approve", by="ann")
    result = await engine.resume(RUN_ID)

    assert result.state is RunStatus.COMPLETED
    stored = await find_run(db, RUN_ID)
    assert stored is not None
    assert {key: phase.state for key, phase in stored.phases.items()} == dict.fromkeys(
        ("outline", "style", "proof", "build"), RunPhaseState.COMPLETED
    )
    events = list(db.store.list_events(RUN_ID))
    assert [(event.seq, event.kind, event.payload) for event in events[: len(recorded)]] == [
        (event.seq, event.kind, event.payload) for event in recorded
    ]
    # What was recorded is replayed, not asked again: each answer of the model has one request, and one result per call.
    for lane in ("outline", "style", "proof"):
        assert count(events, EventKind.MODEL_RESPONSE, lane) == count(recorded, EventKind.MODEL_RESPONSE, lane)
    assert count(events, EventKind.MODEL_REQUEST, "build") == count(events, EventKind.MODEL_RESPONSE, "build")
    results = Counter(event.payload["key"] for event in events if event.kind is EventKind.TOOL_RESULT)
    assert set(results.values()) == {1}
    # The set-up was recorded, and is not made again; the check runs in the sandbox, which has a home of its own.
    assert (tmp_path / "effects").read_text().split() == ["set-up"]
    checks = [event for event in events if event.kind is EventKind.TOOL_RESULT and "/check" in event.payload["key"]]
    assert [check.payload["result"]["exit_code"] for check in checks] == [0]
    trees = [event.payload["result"]["tree"] for event in events if event.kind is EventKind.CHECKPOINT_SAVED]
    files = subprocess.run(
        ["git", "-C", str(tmp_path / "repo"), "ls-tree", "-r", "--name-only", trees[-1]],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert {"README.md", "out/build.json", "out/outline.json", "out/proof.json", "out/style.json"} <= set(files)
    await db.dispose()
