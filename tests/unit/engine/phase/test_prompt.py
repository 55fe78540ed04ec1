"""What an agent is told of its artifact is enough to write it."""

import json
from pathlib import Path

from tests.support.engine_world import phase, template

from holdfast.agents.envelope import find_envelope
from holdfast.agents.simulated.schema_sample import sample
from holdfast.artifact_schema import ArtifactSchemaRegistry
from holdfast.engine.phase.prompt import PhaseTask, render_envelope


def test_the_schemas_that_a_schema_refers_to_come_with_it(tmp_path: Path) -> None:
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    part = {
        **dialect,
        "$defs": {"risk": {"type": "object", "required": ["what"], "properties": {"what": {"const": 7}}}},
    }
    whole = {
        **dialect,
        "type": "object",
        "required": ["risks"],
        "properties": {"risks": {"type": "array", "minItems": 1, "items": {"$ref": "own/part@1#/$defs/risk"}}},
    }
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "part@1.json").write_text(json.dumps(part))
    (tmp_path / "own" / "whole@1.json").write_text(json.dumps(whole))
    registry = ArtifactSchemaRegistry(roots=[tmp_path])
    made = template(phase("spec", expected_artifact={"path": "out.json", "schema": "own/whole@1"}))

    task = PhaseTask(made, made.phase("spec"), run_id="r", attempt=1, requirements_md="", comment="")
    text = render_envelope(task, registry)

    envelope = find_envelope(text)
    assert envelope is not None
    assert envelope.artifact.schemas == {"holdfast:own/part@1": {"$defs": part["$defs"]}}
    written = sample(dict(envelope.artifact.schema), schemas=envelope.artifact.schemas)
    assert registry.validate("own/whole@1", written) == []
    assert written["risks"][0] == {"what": 7}
