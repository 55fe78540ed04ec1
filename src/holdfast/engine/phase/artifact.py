"""Whether a phase has handed in what it owes: the file is there, it is JSON, and its schema is satisfied."""

import hashlib
import os
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.artifact_schema import ArtifactSchemaRegistry
from holdfast.definitions.findings import Finding
from holdfast.errors import ArtifactInvalid, ArtifactMissing, HoldfastError
from holdfast.workflow import Phase

MAX_ARTIFACT_BYTES = 16 * 1024 * 1024
_CODE_BLOCK = re.compile(r"```(?:json)?[ \t]*\n(.*)\n```", re.DOTALL)


@dataclass(frozen=True)
class ArtifactCheck:
    """What was found at the artifact's place, and what is wrong with it; `warnings` do not count against it."""

    is_missing: bool
    text: str = ""
    hash: str = ""
    findings: tuple[Finding, ...] = ()
    warnings: tuple[str, ...] = field(default=())

    @property
    def is_valid(self) -> bool:
        return not self.is_missing and not self.findings

    def to_result(self) -> dict[str, Any]:
        return {
            "is_missing": self.is_missing,
            "hash": self.hash,
            "findings": [finding.to_dict() for finding in self.findings],
            "warnings": list(self.warnings),
        }

    @classmethod
    def from_result(cls, result: dict[str, Any]) -> "ArtifactCheck":
        findings = tuple(Finding(**finding) for finding in result["findings"])
        return cls(result["is_missing"], "", result["hash"], findings, tuple(result["warnings"]))


def check_artifact(root: Path, phase: Phase, run_id: str, registry: ArtifactSchemaRegistry) -> ArtifactCheck:
    """Look at the phase's artifact as it lies in the workspace now."""
    path = root / phase.expected_artifact.path
    try:
        if not _is_inside(root, path) or not path.is_file():
            return ArtifactCheck(is_missing=True)
        if path.stat().st_size > MAX_ARTIFACT_BYTES:
            return _refused(f"is larger than {MAX_ARTIFACT_BYTES // 1024**2} MB", "size")
        content = path.read_bytes()
    except OSError as error:
        return _refused(f"cannot be read: {error.strerror}", "file")
    data, findings = registry.validate_text(phase.expected_artifact.schema_id, content)
    text = content.decode(errors="replace").encode(errors="replace").decode()
    warnings = _foreign_ids(data, run_id, phase.key)
    return ArtifactCheck(False, text, hashlib.sha256(content).hexdigest(), tuple(findings), warnings)


def hash_artifact(text: str) -> str:
    """Return the hash by which a text is known once it lies at the artifact's place."""
    return hashlib.sha256(text.encode()).hexdigest()


def check_edited(text: str, phase: Phase, registry: ArtifactSchemaRegistry) -> None:
    """Raise `ArtifactInvalid` unless a text that a person wrote can be the artifact of a phase."""
    content = text.encode(errors="replace")
    if len(content) > MAX_ARTIFACT_BYTES:
        raise to_artifact_error(phase, _refused(f"is larger than {MAX_ARTIFACT_BYTES // 1024**2} MB", "size"))
    _data, findings = registry.validate_text(phase.expected_artifact.schema_id, content)
    if findings:
        raise to_artifact_error(phase, ArtifactCheck(False, findings=tuple(findings)))


def write_artifact(root: Path, phase: Phase, text: str) -> None:
    """Put a text in the artifact's place, whole or not at all."""
    path = root / phase.expected_artifact.path
    if not _is_inside(root, path):
        raise to_artifact_error(phase, ArtifactCheck(is_missing=True))
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".artifact-", delete=False) as file:
        file.write(text.encode())
    # crash: the text lies beside under a name that nobody reads; whoever resumes writes it again.
    Path(file.name).replace(path)


def find_in_answer(answer: str, phase: Phase, registry: ArtifactSchemaRegistry) -> str | None:
    """Find the artifact in an agent's answer that is nothing else, or one code block; `None` if that is invalid."""
    if len(answer) > MAX_ARTIFACT_BYTES:
        return None
    block = _CODE_BLOCK.fullmatch(answer.strip())
    text = block[1] if block else answer
    _data, findings = registry.validate_text(phase.expected_artifact.schema_id, text)
    return None if findings else text


def _is_inside(root: Path, path: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def _refused(message: str, rule: str) -> ArtifactCheck:
    return ArtifactCheck(False, findings=(Finding("$", message, rule),))


def _foreign_ids(data: Any, run_id: str, phase_key: str) -> tuple[str, ...]:
    if not isinstance(data, dict):
        return ()
    own = {"runId": run_id, "phaseKey": phase_key}
    return tuple(
        f"{name} is {data[name]!r}, not {value!r}"
        for name, value in own.items()
        if name in data and data[name] != value
    )


def to_artifact_error(phase: Phase, check: ArtifactCheck) -> HoldfastError:
    path, schema_id = phase.expected_artifact.path, phase.expected_artifact.schema_id
    if check.is_missing:
        return ArtifactMissing(
            f"Phase {phase.key!r} ended without its artifact {path}.",
            hint="Look at what the agent did, change the requirements or the persona, then retry the run.",
            phase_key=phase.key,
        )
    first = "; ".join(str(finding) for finding in check.findings[:3])
    return ArtifactInvalid(
        f"The artifact {path} of phase {phase.key!r} is not valid by {schema_id}: {first}.",
        hint="Look at its findings, then retry the run.",
        phase_key=phase.key,
        findings=[finding.to_dict() for finding in check.findings],
    )


def move_aside(root: Path, phase: Phase, attempt: int) -> str | None:
    """Move a file at the artifact's place out of the way, so that it cannot be taken for this attempt's result."""
    path = root / phase.expected_artifact.path
    if not _is_inside(root, path.parent) or (not path.is_symlink() and not path.exists()):
        return None  # behind a link that leaves the workspace lies nothing of the run's
    aside = path.with_name(f"{path.name}.before-{phase.key}-{attempt}")
    # crash: it lies aside already, and the attempt starts as if it had never been there.
    path.replace(aside)
    return str(aside.relative_to(root))
