"""The script of the demo: it fits the workflow it is played in, and is what `--simulate` takes."""

from pathlib import Path

import pytest

import holdfast.cli.demo.workflow_project
from holdfast.agents.envelope import Envelope, ExpectedFile
from holdfast.agents.simulated.script import fill_in, find_artifact
from holdfast.binding import BackendAvailability, bind_personas
from holdfast.catalog import Catalog
from holdfast.enums import Backend
from holdfast.persona import load_persona_file
from holdfast.workflow import Phase

ENGINEER = load_persona_file(Path(holdfast.cli.demo.workflow_project.__file__).with_name("engineer.yaml"))
CATALOG = Catalog.for_repository()
TEMPLATE = CATALOG.get_workflow("feature-delivery").definition


def test_it_has_a_part_in_every_phase_of_the_workflow() -> None:
    assert list(ENGINEER.script) == [phase.key for phase in TEMPLATE.phases]


def test_it_is_preferred_to_the_shipped_simulated_personas() -> None:
    pool = [ENGINEER, *(entry.definition for entry in CATALOG.list_personas())]

    bound = bind_personas(TEMPLATE, pool, BackendAvailability(frozenset({Backend.SIMULATED})))

    assert {binding.persona.name for binding in bound.values()} == {ENGINEER.name}


@pytest.mark.parametrize("comment", ["", "Use a loop."])
@pytest.mark.parametrize("phase", TEMPLATE.phases, ids=lambda phase: phase.key)
def test_its_artifacts_are_valid(phase: Phase, comment: str) -> None:
    registry = CATALOG.artifact_registry()
    schema_id = phase.expected_artifact.schema_id
    envelope = Envelope(
        run_id="7f3c1a52-9d0e-4c5b-8a41-2b6d0f9e1c33",
        phase_key=phase.key,
        artifact=ExpectedFile(phase.expected_artifact.path, schema_id, registry.get_schema(schema_id)),
    )

    artifact = find_artifact(fill_in(ENGINEER.script[phase.key], comment), envelope)

    assert registry.validate(schema_id, artifact) == []
    assert ("Use a loop." in str(artifact)) is (bool(comment) and phase.key == "plan")
