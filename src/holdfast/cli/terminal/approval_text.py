"""What an approval is about, in words: the change, the call, the deadline. Shared by every place that shows one."""

import json
import shlex
from typing import Any

from holdfast.cli.terminal.output import plain
from holdfast.persistence.raw_sql import find_artifact_text
from holdfast.presentation.format import moment
from holdfast.presentation.values import describe_values
from holdfast.runtime.run_fold.call_line import find_argv, quote_name, quote_value

_MOST_CHARS = 200
IN_DOUBT = "This call was in flight when its process ended. Whether it happened is not known."


def summarize_approval(approval: dict[str, Any]) -> str:
    """Say in a few words what an approval is about."""
    details = approval["shown"] if isinstance(approval["shown"], dict) else {}
    if approval["about"] == "outcome":
        return f"what became of a call is not known: {describe_request(details)}"
    if approval["about"] == "tool":
        return describe_request(details)
    return plain(f"{details.get('artifact', '')} · {describe_change(details)}")


def describe_change(details: dict[str, Any]) -> str:
    """Count the files and lines that a change touches."""
    files = details.get("files") or []
    return f"{len(files)} file{'s' if len(files) != 1 else ''}, +{details.get('added', 0)} −{details.get('removed', 0)}"


def describe_request(details: dict[str, Any]) -> str:
    """Show the call that a question is about on one line: `execute touch a.txt`; longer values are cut."""
    args = read_call_args(details)
    if isinstance(args, dict) and len(args) != 1:
        text = ", ".join(f"{quote_name(name)}: {_to_line(quote_value(value))}" for name, value in args.items())
    else:
        text = _to_line(next(iter(args.values())) if isinstance(args, dict) else args or "")
    return plain(f"{_name_call(details)} {text}".strip())


def describe_request_in_full(details: dict[str, Any]) -> str:
    """Show the call that a question is about with all of its arguments, one below the other."""
    args = read_call_args(details)
    lines = describe_values(args) if args else []
    return plain("\n".join([_name_call(details), *(f"  {line}" for line in lines)]))


def read_call_args(details: dict[str, Any]) -> Any:
    """Return the arguments, or the command line where the call is nothing else."""
    argv = find_argv(details)
    return details.get("args") if argv is None else shlex.join(argv)


def _name_call(details: dict[str, Any]) -> str:
    return str(details.get("tool") or details.get("key") or "")


def _to_line(value: Any) -> str:
    text = " ".join((value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).split())
    return text if len(text) <= _MOST_CHARS else f"{text[: _MOST_CHARS - 1]}…"


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
