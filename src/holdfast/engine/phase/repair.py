"""The repair turn of a phase: its agent is asked once more, and at its end for the artifact itself as its answer."""

from collections.abc import Sequence
from typing import Any

from holdfast.engine.phase.agent_turn import More
from holdfast.engine.phase.artifact import check_artifact, find_in_answer
from holdfast.engine.phase.prompt import render_last_request
from holdfast.engine.scope import RunScope
from holdfast.enums import Backend
from holdfast.workflow import Phase

REPAIR_TURN = 2


def more_for_repair(scope: RunScope, phase: Phase) -> More | None:
    """Return the middleware that asks an agent without a valid artifact for it; `None` if its persona has none."""
    persona = scope.persona_of(phase)
    if persona.structured_output == "never" or persona.backend in (Backend.COMMAND, Backend.SIMULATED):
        return None
    artifact, registry = phase.expected_artifact, scope.registry

    def look(said: str) -> str | None:
        found = check_artifact(scope.place.root, phase, scope.run_id, registry)
        if found.is_valid or find_in_answer(said, phase, registry) is not None:
            return None
        return render_last_request(artifact.path, artifact.schema_id, found.findings, is_missing=found.is_missing)

    async def find_fault(said: str) -> str | None:
        return await scope.on_disk(lambda: look(said))

    def more(journal: Any) -> Sequence[Any]:
        from holdfast.agents.final_answer import FinalAnswer

        # A provider gets one document. One that refers to others is asked for in words alone.
        schema = None if registry.get_referenced(artifact.schema_id) else registry.get_schema(artifact.schema_id)
        return [FinalAnswer(scope.log, journal, schema, find_fault)]

    return more
