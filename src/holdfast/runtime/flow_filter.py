"""Which flow runs are meant, as SQL that every store understands, for whoever lists them."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class FlowFilter:
    """Which runs: every field that is given must fit."""

    status: str | None = None
    flow: str | None = None
    text: str | None = None
    """Part of the run's id, of the flow's name or of its tags."""
    tags: Sequence[str] = ()
    """Each `name` or `name=value`; a run must have them all."""
    since: float | None = None
    """Created then or later; the next one: before."""
    until: float | None = None

    def to_sql(self) -> tuple[str, dict[str, Any]]:
        """Return the conditions, and their parameters, in SQL that every store understands."""
        params: dict[str, Any] = {}
        conditions = ["1 = 1"]
        for name, condition in _CONDITIONS.items():
            if (value := getattr(self, name)) is not None:
                conditions.append(condition)
                params[name] = _to_pattern(value) if name == "text" else value
        for index, tag in enumerate(self.tags):
            conditions.append(f"replace({_TAGS}, :tag_{index}, '') <> {_TAGS}")
            params[f"tag_{index}"] = _to_tag_text(tag)
        return " AND ".join(conditions), params


_TAGS = "', ' || substr(tags, 2)"  # each tag with what separates it from the one before, also the first
_CONDITIONS = {
    "status": "status = :status",
    "flow": "flow = :flow",
    "text": r"(flow LIKE :text ESCAPE '\' OR tags LIKE :text ESCAPE '\' OR run_id LIKE :text ESCAPE '\')",
    "since": "created_at >= :since",
    "until": "created_at < :until",
}


def _to_pattern(text: str) -> str:
    escaped = re.sub(r"([%_\\])", r"\\\1", text)
    return f"%{escaped}%"


def _to_tag_text(tag: str) -> str:
    """Return a tag as it stands after others: quotes inside names and values are escaped there, so it is no part of
    another one."""
    name, is_valued, value = tag.partition("=")
    return f", {_dump(name)}: {_dump(value) if is_valued else ''}"


def to_tags_text(tags: Mapping[str, str]) -> str:
    """Return tags as their column holds them."""
    return _dump(dict(tags)) if tags else "{}"


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
