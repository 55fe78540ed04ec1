"""The text an agent gets: its own phase, the artifacts before it, and nothing of what comes later."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.agents.envelope import Envelope, ExpectedFile, PhaseInput, to_block
from holdfast.artifact_schema import ArtifactSchemaRegistry
from holdfast.definitions.findings import Finding
from holdfast.images import ImageLabel
from holdfast.workflow import Phase, WorkflowTemplate


@dataclass(frozen=True)
class PhaseTask:
    """What an attempt of a phase works from."""

    template: WorkflowTemplate
    phase: Phase
    run_id: str
    attempt: int
    requirements_md: str
    comment: str
    """What must be different from the attempt before."""
    moved_aside: str | None = None
    """Where a file lies that was at the artifact's place."""
    instructions: str = ""
    """The repository's own for agents."""
    images: Sequence[ImageLabel] = ()
    """What goes with the requirements."""


def render_envelope(task: PhaseTask, registry: ArtifactSchemaRegistry) -> str:
    """Render the one message that is enough to do the phase's work; an attempt pins it in the journal as it starts."""
    phase, artifact = task.phase, task.phase.expected_artifact
    envelope = Envelope(
        run_id=task.run_id,
        phase_key=phase.key,
        title=phase.title,
        attempt=task.attempt,
        read_only=phase.read_only,
        requirements=task.requirements_md,
        comment=task.comment,
        inputs=tuple(
            PhaseInput(key, _path_now(task.template.phase(key), artifact.path, task.moved_aside))
            for key in task.template.upstream_of(phase.key)
        ),
        images=tuple(map(str, task.images)),
        artifact=_expected(artifact.path, artifact.schema_id, registry),
    )
    return "\n\n".join(part for part in _parts(task, envelope) if part) + "\n"


def _expected(path: str, schema_id: str, registry: ArtifactSchemaRegistry) -> ExpectedFile:
    others = {name: _without_dialect(schema) for name, schema in registry.get_referenced(schema_id).items()}
    return ExpectedFile(path, schema_id, _without_dialect(registry.get_schema(schema_id)), others)


def _without_dialect(schema: dict[str, Any]) -> dict[str, Any]:
    """Leave out the dialect of a schema, which is always the same and tells an agent nothing."""
    return {name: value for name, value in schema.items() if name != "$schema"}


def _path_now(earlier: Phase, path: str, moved_aside: str | None) -> str:
    """Return where an earlier phase's artifact lies now: if this phase writes the same file, it was moved aside."""
    own = earlier.expected_artifact.path
    return moved_aside if moved_aside and own == path else own


def _parts(task: PhaseTask, envelope: Envelope) -> list[str]:
    phase, artifact = task.phase, envelope.artifact
    read = "\n".join(f"- `{item.path}` (result of phase `{item.phase_key}`)" for item in envelope.inputs)
    pictures = "\n".join(f"- {image}" for image in envelope.images)
    before = f"\n\nThe earlier version is in `{task.moved_aside}`." if task.moved_aside else ""
    return [
        f"# {phase.title}",
        f"You do phase `{phase.key}` of run `{envelope.run_id}`.",
        f"## What is wanted\n\n{envelope.requirements or 'No requirements were given.'}",
        f"## Images that go with it\n\n{pictures}" if envelope.images else "",
        f"## Your task\n\n{phase.instructions}",
        f"## What others have done\n\nRead these files first:\n\n{read}" if envelope.inputs else "",
        f"## What must be different this time\n\n{envelope.comment}{before}" if envelope.comment else "",
        f"## Project instructions\n\n{task.instructions}" if task.instructions else "",
        "## Rules\n\nThe repository is your working folder; paths are relative to it. "
        + ("Change no file but the artifact." if phase.read_only else "Do not commit: that is done for you."),
        f"## Your result\n\nWrite one JSON file to `{artifact.path}` that is valid by the schema "
        f"`{artifact.schema_id}` below. The phase is over when it is there and valid. `runId` is "
        f"`{envelope.run_id}` and `phaseKey` is `{phase.key}` wherever the schema asks for them.",
        to_block(envelope),
    ]


def render_repair(path: str, schema_id: str, findings: Sequence[Finding], *, is_missing: bool) -> str:
    """Render the one message that asks for a corrected artifact, with every finding."""
    if is_missing:
        return f"You ended without writing `{path}`. Write it now: JSON, valid by the schema `{schema_id}`."
    lines = "\n".join(f"- {finding.path or '(the whole)'}: {finding.message} [{finding.rule}]" for finding in findings)
    return f"`{path}` is not valid by the schema `{schema_id}`:\n\n{lines}\n\nMend these and write the file again."


def render_last_request(path: str, schema_id: str, findings: Sequence[Finding], *, is_missing: bool) -> str:
    """Render the message after which an agent's answer is the artifact, with every finding."""
    lines = "\n".join(f"- {finding}" for finding in findings)
    state = "is not there" if is_missing else f"is still not valid:\n\n{lines}\n\n"
    return (
        f"`{path}` {state}{'. ' if is_missing else ''}Use no more tools. Answer now with the content of the file and "
        f"nothing else: JSON, valid by the schema `{schema_id}`. Your answer is written to the file for you."
    )
