"""Writes of the table `artifacts`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.persistence.statements.table import insert, now_text
from holdfast.runtime.checkpoint.base import Statement


@dataclass(frozen=True)
class NewArtifactRow:
    """One version of an artifact, as a turn of an attempt left it."""

    run_id: str
    phase_key: str
    attempt: int
    turn: int
    path: str
    schema_id: str
    hash: str
    state: str
    findings: Sequence[Any]
    content: str


def insert_artifact(artifact: NewArtifactRow) -> Statement:
    """Insert a version of an artifact; NUL, which a row cannot hold, is written as its escape."""
    content = artifact.content.replace("\0", "\\u0000")
    return insert("artifacts", {**vars(artifact), "content": content, "created_at": now_text()})


_COPIED_OF_ARTIFACT = (
    *("phase_key", "attempt", "turn", "path", "schema_id", "hash", "state", "findings", "content", "created_at"),
)


def copy_artifact(run_id: str, artifact: Any) -> Statement:
    """Insert the artifact of a fork's original, as its row has it."""
    return insert("artifacts", {"run_id": run_id, **{name: getattr(artifact, name) for name in _COPIED_OF_ARTIFACT}})
