"""What an approval is about, in words: the change, the call, the deadline. Shared by every place that shows one."""

import json
from typing import Any

from holdfast.persistence.raw_sql import find_artifact_text
from holdfast.presentation.format import moment

IN_DOUBT = "This call was in flight when its process died. Whether it happened is not known."


def summarize_approval(approval: dict[str, Any]) -> str:
    """Say in a few words what an approval is about."""
    details = approval["shown"] if isinstance(approval["shown"], dict) else {}
    if approval["about"] == "outcome":
        return f"what became of a call is not known: {describe_request(details)}"
    if approval["about"] == "tool":
        return describe_request(details)
    return f"{details.get('artifact', '')} · {describe_change(details)}"


def describe_change(details: dict[str, Any]) -> str:
    """Count the files and lines that a change touches."""
    files = details.get("files") or []
    return f"{len(files)} file{'s' if len(files) != 1 else ''}, +{details.get('added', 0)} −{details.get('removed', 0)}"


def describe_request(details: dict[str, Any]) -> str:
    """Show the call that a question is about, in a line or two."""
    args = details.get("args") or details.get("argv")
    text = json.dumps(args, ensure_ascii=False) if isinstance(args, dict | list) else str(args or "")
    return f"{details.get('tool', details.get('key', ''))} {text}".strip()


def describe_deadline(row: dict[str, Any]) -> str:
    """Say until when an approval can be answered, and what happens then."""
    if not row["deadline_at"]:
        return ""
    action = row["shown"].get("on_deadline", "reject") if isinstance(row["shown"], dict) else "reject"
    return f" · until {moment(row['deadline_at'])}, then {action}"


def read_content(row: dict[str, Any]) -> str:
    """Return the whole artifact; what was recorded with the question is cut where it is very long."""
    details = row["shown"] if isinstance(row["shown"], dict) else {}
    digest = (details.get("subject") or {}).get("artifact_hash")
    text = find_artifact_text(row["run_id"], row["phase_key"], row["attempt"], digest)
    return text if text is not None else str(details.get("content") or "")
