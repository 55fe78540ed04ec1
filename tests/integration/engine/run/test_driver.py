"""A run from beginning to end: what it returns, and what it leaves in rows, journal, files and report."""

import hashlib
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.support.engine_world import CATALOG, SCHEMA, Turn, World, artifact, hand_in, phase, template

from holdfast.artifact_schema import ArtifactSchemaRegistry
from holdfast.enums import Backend, RunPhaseState, RunStatus
from holdfast.errors import HoldfastError
from holdfast.persistence.models import RunBindingRow, RunEventRow, RunPhaseRow, WorkflowTemplateRow
from holdfast.persona import load_personas_from_dir


def read_report(path: Any) -> dict[str, Any]:
    """The JSON report, valid by its schema, with a Markdown one beside it."""
    report: dict[str, Any] = json.loads(Path(path).read_text())
    registry = ArtifactSchemaRegistry(roots=[CATALOG / "artifacts"])
    assert registry.validate("common/final-report@1", report) == []
    assert report["state"] in Path(path).with_suffix(".md").read_text()
    return report


async def test_a_run_goes_through_its_phases_in_order_and_ends_completed(world: World) -> None:
    result = await world.run(hand_in, "spec", "plan", requirements_md="Say hello.")

    assert result.state is RunStatus.COMPLETED
    assert isinstance(result.run_id, uuid.UUID)
    assert result.error is None
    assert [(item.key, item.state, item.attempts) for item in result.phases] == [
        ("spec", RunPhaseState.COMPLETED, 1),
        ("plan", RunPhaseState.COMPLETED, 1),
    ]
    assert world.phases_done() == ["spec", "plan"]
    row = await world.run_row(result.run_id)
    assert (row.state, row.repo_path, row.base_branch) == ("completed", str(world.repo), "main")
    assert row.created_at <= row.updated_at
    assert row.created_at.endswith(("Z", "+00:00"))
    assert all(item.started_at and item.ended_at for item in await world.select(RunPhaseRow, result.run_id))


async def test_the_journal_tells_the_run_in_order_and_ends_with_its_end(world: World) -> None:
    result = await world.run(hand_in, "spec", "plan")

    rows = await world.select(RunEventRow, result.run_id, RunEventRow.seq)
    kinds = [row.type for row in rows]
    milestones = ["run.created", "run.started", "phase.started", "artifact.accepted", "phase.completed"]
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    assert [kind for kind in kinds if kind in milestones] == [*milestones, *milestones[2:]]
    assert kinds[-1] == "run.completed"


async def test_every_role_is_bound_once_and_the_template_is_kept_as_it_was(world: World) -> None:
    made = template("spec")
    result = await world.run(template=made)

    [binding] = await world.select(RunBindingRow, result.run_id)
    row = await world.run_row(result.run_id)
    async with world.db.session() as session:
        stored = await session.get(WorkflowTemplateRow, row.template_id)
    assert (binding.role_id, binding.backend) == ("author", "openrouter")
    assert stored is not None
    assert stored.definition == made.model_dump(by_alias=True)
    assert stored.hash == row.template_hash


async def test_every_version_of_an_artifact_is_kept_with_hash_and_findings(world: World) -> None:
    def script(turn: Turn) -> None:
        turn.hand_in() if turn.is_repair else turn.hand_in({"runId": "no uuid"})

    result = await world.run(script)

    first, second = await world.artifacts(result.run_id)
    content = json.dumps(artifact(str(result.run_id), "spec"))
    assert (first.state, second.state) == ("rejected", "accepted")
    assert first.content == json.dumps({"runId": "no uuid"})
    assert {finding["rule"] for finding in first.findings} >= {"required"}
    assert second.findings == []
    assert second.hash == hashlib.sha256(content.encode()).hexdigest()
    assert (second.path, second.schema_id) == ("out/spec.json", SCHEMA)


async def test_a_completed_run_has_a_report_of_what_was_done(world: World) -> None:
    def script(turn: Turn) -> None:
        turn.write("greeting.py", "print('hi')\n")
        turn.hand_in()

    result = await world.run(script, requirements_md="Greet | people.")

    report = read_report(result.final_report_path)
    assert (report["runId"], report["state"], report["error"]) == (str(result.run_id), "completed", None)
    assert [file["path"] for file in report["files"]] == ["greeting.py"]
    assert report["requirements"] == "Greet | people."


async def test_a_failed_run_has_a_report_that_says_why(world: World) -> None:
    result = await world.run(lambda _turn: None, "spec", "plan")

    assert result.state is RunStatus.FAILED
    assert result.error is not None
    assert result.error.code == "artifact_missing"
    assert (await world.kinds(result.run_id))[-1] == "run.failed"
    report = read_report(result.final_report_path)
    assert report["error"]["code"] == "artifact_missing"
    assert [item["state"] for item in report["phases"]] == ["failed", "pending"]


async def test_an_aborted_run_has_a_report_with_the_reason(world: World) -> None:
    paused = await world.run(hand_in, phase("spec", risk="high"), "plan")

    result = await world.engine().abort(paused.run_id, "changed our minds")

    assert result.state is RunStatus.CANCELLED
    assert (await world.kinds(result.run_id))[-1] == "run.cancelled"
    report = read_report(result.final_report_path)
    assert "changed our minds" in report["summary"]


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM run_bindings WHERE run_id = :id",
        "UPDATE workflow_templates SET definition = '7' WHERE id = (SELECT template_id FROM runs WHERE id = :id)",
    ],
)
async def test_a_run_that_cannot_be_read_any_more_is_cancelled_with_a_report(world: World, damage: str) -> None:
    def script(turn: Turn) -> None:
        turn.write("made.txt", "made\n")
        turn.hand_in()

    waiting = await world.run(script, phase("spec", risk="high"), "plan")
    world.is_damaged = True
    await world.sql(damage, id=str(waiting.run_id))

    result = await world.engine().abort(waiting.run_id, "its rows are damaged", by="ann")

    assert result.state is RunStatus.CANCELLED
    report = read_report(result.final_report_path)
    assert report["cancelled"] == {"reason": "its rows are damaged", "by": "ann"}
    assert "could not be read" in report["summary"]
    phases = [(item["key"], item["state"]) for item in report["phases"]]
    assert phases == [("spec", "awaiting_approval"), ("plan", "pending")]
    [cancelled] = world.events(waiting.run_id, "run.cancelled")
    assert cancelled.payload["report"] == result.final_report_path


@pytest.mark.parametrize("as_type", [str, uuid.UUID])
async def test_a_run_can_be_given_its_id(world: World, as_type: type[Any]) -> None:
    run_id = uuid.uuid4()
    result = await world.run(pre_allocated_run_id=as_type(str(run_id)))

    assert result.run_id == run_id
    assert (await world.engine().result(str(run_id).upper())).run_id == run_id
    with pytest.raises(HoldfastError) as error:
        await world.run(pre_allocated_run_id=run_id)
    assert error.value.code == "run_not_in_state"


async def test_an_id_that_is_no_uuid_is_refused(world: World) -> None:
    with pytest.raises(HoldfastError) as error:
        await world.run(pre_allocated_run_id="first-run")

    assert error.value.code == "run_id_invalid"
    assert world.db.store.list_runs() == []


async def test_what_cannot_start_writes_nothing(world: World) -> None:
    engine = world.engine(backends=frozenset({Backend.OLLAMA}), pool=())

    with pytest.raises(HoldfastError) as nobody:
        await engine.run(template("spec"), repo_path=world.repo)
    with pytest.raises(HoldfastError) as nowhere:
        await world.run(repo_path=world.folder / "no-such-folder")

    assert (nobody.value.code, nowhere.value.code) == ("persona_ineligible", "config_invalid")
    assert world.db.store.list_runs() == []


async def test_the_agent_is_given_the_bound_persona_and_a_folder_to_write_in(world: World) -> None:
    await world.run()

    [turn] = world.turns
    assert isinstance(turn.root, Path)
    assert turn.persona in load_personas_from_dir(CATALOG / "personas")
    assert turn.persona.backend is Backend.OPENROUTER
    assert (turn.root / "app.py").read_text() == "print('hello')\n"
    assert [message["role"] for message in turn.messages] == ["user"]


async def test_making_an_engine_resumes_nothing(world: World) -> None:
    waiting = await world.engine().create(world.know(template("spec")), repo_path=world.repo)

    await world.run()

    assert (await world.run_row(waiting)).state == "pending"
    assert len(world.turns) == 1


async def test_recovery_goes_on_with_runs_that_have_no_owner_and_is_not_stopped_by_a_broken_one(world: World) -> None:
    engine = world.engine()
    made = world.know(template("spec"))
    broken, whole = [await engine.create(made, repo_path=world.repo) for _ in range(2)]
    await world.sql("DELETE FROM run_bindings WHERE run_id = :id", id=broken)
    world.is_damaged = True

    recovered = await engine.recover()

    assert recovered == [whole]
    assert (await world.run_row(whole)).state == "completed"
    assert (await world.run_row(broken)).state == "pending"
