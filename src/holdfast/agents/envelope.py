"""The envelope of a phase: the first message an agent gets. A text for models, with one block of JSON for programs.

The block is the last one fenced as json that holds `run_id`, `phase_key` and `artifact`, so that nothing in the
requirements can stand in for it.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_BLOCK = re.compile(r"^```json[ \t]*\n(.*?)\n```[ \t]*$", re.MULTILINE | re.DOTALL)
_REQUIRED = ("run_id", "phase_key", "artifact")


@dataclass(frozen=True, slots=True)
class ExpectedFile:
    """The artifact a phase must write. `schemas` holds what the schema refers to by id, if anything."""

    path: str
    schema_id: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict)
    schemas: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PhaseInput:
    """The accepted artifact of an earlier phase."""

    phase_key: str
    path: str


@dataclass(frozen=True, slots=True)
class Envelope:
    """What an agent is told about its phase; never anything about later ones."""

    run_id: str
    phase_key: str
    artifact: ExpectedFile
    title: str = ""
    read_only: bool = False
    requirements: str = ""
    inputs: tuple[PhaseInput, ...] = ()
    attempt: int = 1
    comment: str = ""
    """What a person wants changed of the attempt before."""
    images: tuple[str, ...] = ()
    """What goes with the requirements, in words."""

    def to_dict(self) -> dict[str, Any]:
        artifact: dict[str, Any] = {
            "path": self.artifact.path,
            "schema_id": self.artifact.schema_id,
            "schema": dict(self.artifact.schema),
        }
        if self.artifact.schemas:
            artifact["schemas"] = dict(self.artifact.schemas)
        images = {"images": list(self.images)} if self.images else {}
        return {
            "run_id": self.run_id,
            "phase_key": self.phase_key,
            "title": self.title,
            "read_only": self.read_only,
            "artifact": artifact,
            "requirements": self.requirements,
            "inputs": [{"phase_key": item.phase_key, "path": item.path} for item in self.inputs],
            "attempt": self.attempt,
            "comment": self.comment,
            **images,
        }


def to_block(envelope: Envelope) -> str:
    """Render an envelope as a JSON block; it belongs at the end of the text."""
    return f"```json\n{json.dumps(envelope.to_dict(), ensure_ascii=False, indent=2)}\n```"


def find_envelope(text: str) -> Envelope | None:
    """Find the envelope in the last JSON block of a text that holds one, or `None`."""
    for block in reversed(_BLOCK.findall(text)):
        try:
            block_data = json.loads(block)
        except ValueError:
            continue
        if isinstance(block_data, dict) and all(name in block_data for name in _REQUIRED):
            return _from_dict(block_data)
    return None


def _from_dict(fields: Mapping[str, Any]) -> Envelope:
    artifact = fields["artifact"] if isinstance(fields["artifact"], dict) else {}
    return Envelope(
        run_id=str(fields["run_id"]),
        phase_key=str(fields["phase_key"]),
        artifact=ExpectedFile(
            path=str(artifact.get("path") or ""),
            schema_id=str(artifact.get("schema_id") or ""),
            schema=artifact.get("schema") or {},
            schemas=artifact.get("schemas") or {},
        ),
        title=str(fields.get("title") or ""),
        read_only=bool(fields.get("read_only")),
        requirements=str(fields.get("requirements") or ""),
        inputs=tuple(PhaseInput(str(item["phase_key"]), str(item["path"])) for item in fields.get("inputs") or ()),
        attempt=int(fields.get("attempt") or 1),
        comment=str(fields.get("comment") or ""),
        images=tuple(map(str, fields.get("images") or ())),
    )
