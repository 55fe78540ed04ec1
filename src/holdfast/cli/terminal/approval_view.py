"""One approval in full: what is to be approved, why it is asked, and the commands to answer it."""

import shutil
from collections.abc import Iterator
from typing import Any

from holdfast.cli.terminal.approval_text import (
    IN_DOUBT,
    describe_change,
    describe_deadline,
    read_call_args,
    read_content,
)
from holdfast.cli.terminal.output import has_colour, mark, paint, paint_diff, plain
from holdfast.enums import RunStatus
from holdfast.persistence.raw_sql import find_template, get_run, read_approvals
from holdfast.presentation.format import moment
from holdfast.presentation.values import describe_json, describe_values


def read_approval(approval_id: str) -> dict[str, Any]:
    """Return everything a person asks about one approval; `shown` is what was recorded when it was asked."""
    (row,) = read_approvals(approval_id=approval_id)
    details = row["shown"] = row["shown"] if isinstance(row["shown"], dict) else {}
    run = get_run(row["run_id"])
    row["risk"] = _find_risk(find_template(row["run_id"]), row["phase_key"])
    is_open = row["state"] == "pending" and not RunStatus(run["state"]).is_terminal
    return {
        **row,
        "workflow": run["workflow"],
        "title": run["title"] or run["requirements_md"].strip().partition("\n")[0],
        "repo_path": run["repo_path"],
        "worktree": run["worktree_root"],
        "run_state": run["state"],
        "reason": _explain(row),
        "artifact": details.get("artifact"),
        "content": read_content(row) if row["about"] == "phase" else None,
        "diff": details.get("diff"),
        "since_answer": details.get("since_answer"),
        "edits": _read_edits(row) if is_open and row["about"] == "phase" else "",
        "commands": dict(_commands(row)) if is_open else {},
    }


def _read_edits(row: dict[str, Any]) -> str:
    """Return how the worktree differs from what lay there when it was asked, as a patch."""
    from holdfast.config import load_config
    from holdfast.engine.patch import read_edits

    tree = (row["shown"].get("subject") or {}).get("tree")
    return read_edits(load_config().data_dir, row["run_id"], str(tree)) if tree else ""


def describe_approval(facts: dict[str, Any]) -> Iterator[str]:
    """Describe an approval to a person: what it is about, what changed since the last answer, and how to answer."""
    for part in (_head, _subject, _since_answer, _edits, _answers):
        yield from part(facts)


def _explain(row: dict[str, Any]) -> str:
    from holdfast.presentation.status import explain_question

    return explain_question(_to_question(row))


def _to_question(row: dict[str, Any]) -> Any:
    from holdfast.presentation.status import OpenApproval

    names = ("about", "phase_key", "attempt", "requested_at", "first_by", "risk")
    return OpenApproval(details=row["shown"], **{name: row[name] for name in names})


def _find_risk(definition: Any, phase_key: str) -> str:
    phases = definition.get("phases") if isinstance(definition, dict) else None
    found = [phase for phase in phases or () if isinstance(phase, dict) and phase.get("key") == phase_key]
    return str(found[0].get("risk") or "") if found else ""


def _commands(row: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the commands to answer with, and what each does."""
    short = row["approval_id"][:8]
    yield "approve", f"holdfast approve {short}"
    if row["about"] == "phase":
        yield "request_changes", f'holdfast reject {short} --changes "…"'
    if row["about"] == "outcome":
        yield "result", f'holdfast approve {short} --result "…"'
    if row["about"] == "tool":
        yield "change", f"holdfast approve {short} --args JSON"
        if isinstance(row["shown"], dict) and row["shown"].get("kind"):
            yield "for_run", f"holdfast approve {short} --for-run"
    yield "reject", f"holdfast reject {short}"
    yield "resume", f"holdfast resume {row['run_id'][:8]}"


def _head(facts: dict[str, Any]) -> Iterator[str]:
    state = "paused" if facts["commands"] else "completed"
    yield f"{mark(state)} {paint(_headline(facts), 'bold')}\n"
    rows = {
        "approval": f"{facts['approval_id']}, attempt {facts['attempt']}",
        "run": f"{facts['run_id'][:8]}  {facts['workflow']}: {facts['title']}".rstrip(": "),
        "repository": facts["repo_path"],
        "worktree": facts["worktree"] or "",
        "asked": f"{moment(facts['requested_at'])}, because {facts['reason']}{describe_deadline(facts)}",
        "digest": facts["digest"],
        "undo": _describe_undo(facts),
    }
    for name, value in rows.items():
        if value:
            yield f"  {paint(name.ljust(10), 'dim')}  {plain(value)}"
    if facts["first_by"]:
        yield f"  {paint('approved'.ljust(10), 'dim')}  by {facts['first_by']}; a second person must approve too"


def _describe_undo(facts: dict[str, Any]) -> str:
    """Say that what a command does to files can be taken back."""
    from holdfast.presentation.status import COMMAND_TOOLS

    if facts["about"] != "tool" or facts["shown"].get("tool") not in COMMAND_TOOLS:
        return ""
    return f"the files are recorded before it runs; holdfast restore {facts['run_id'][:8]} puts them back"


def _headline(facts: dict[str, Any]) -> str:
    from holdfast.presentation.status import describe_question

    if facts["state"] == "superseded":
        return f"Phase {facts['phase_key']} was asked for anew; this question no longer counts"
    if facts["state"] != "pending":
        action = str(facts["action"]).replace("_", " ")
        return f"Phase {facts['phase_key']}: answered with {action} by {facts['decided_by'] or 'someone'}"
    if not facts["commands"]:
        return f"Phase {facts['phase_key']}: nothing is left to decide, the run is {facts['run_state']}"
    if facts["about"] == "phase":
        return f"Phase {facts['phase_key']} of {facts['workflow']} waits for your approval"
    return describe_question(_to_question(facts))


def _subject(facts: dict[str, Any]) -> Iterator[str]:
    details = facts["shown"]
    if facts["about"] != "phase":
        yield from _call(facts)
        return
    content = describe_json(facts["content"])
    yield f"\n{paint(str(facts['artifact'] or 'The artifact'), 'bold')}\n{_indented(content)}"
    yield f"\n{paint(f'Changed since the last accepted state: {describe_change(details)}', 'bold')}"
    if others := _without_artifact(str(facts["diff"] or ""), str(facts["artifact"])):
        yield _to_diff(others)
        yield f"  Again, and in full: holdfast runs diff {facts['run_id'][:8]} --phase {facts['phase_key']}"
    elif details.get("files"):
        yield "  Only the artifact."


def _call(facts: dict[str, Any]) -> Iterator[str]:
    details = facts["shown"]
    if facts["about"] == "outcome":
        yield f"\n{IN_DOUBT}"
    yield f"\n{paint(plain(str(details.get('tool') or details.get('key') or '')), 'bold')}"
    yield _indented("\n".join(describe_values(read_call_args(details))))
    yield f"\n  What the phase has changed so far: holdfast runs diff {facts['run_id'][:8]}"


def _since_answer(facts: dict[str, Any]) -> Iterator[str]:
    since = facts["since_answer"]
    if not since:
        return
    who = f" by {since['by']}" if since.get("by") else ""
    about = f"{describe_change(since)}" if "files" in since else "it can no longer be compared"
    yield f"\n{paint(f'Changed since the last answer: {about}', 'bold')}"
    if since.get("comment"):
        yield _indented(f"Attempt {since['attempt']} was refused{who}: {since['comment']}")
    if since.get("files"):
        yield _to_diff(str(since.get("diff") or ""))


def _edits(facts: dict[str, Any]) -> Iterator[str]:
    if facts["edits"]:
        yield f"\n{paint('Edited in the worktree since it was asked', 'bold')}"
        yield _to_diff(facts["edits"])
        yield f"  It asks again, about the files as they are now: holdfast resume {facts['run_id'][:8]}"


def _answers(facts: dict[str, Any]) -> Iterator[str]:
    from holdfast.presentation.status import describe_choices
    from holdfast.presentation.tool_call import describe_grant

    commands = facts["commands"]
    if not commands:
        return
    causes = {action: text for action, (_label, text) in describe_choices(_to_question(facts)).items()}
    causes["change"] = "The agent calls it with these arguments instead."
    causes["for_run"] = plain(describe_grant(facts["shown"]))
    width = max(len(command) for command in commands.values())
    is_wide = shutil.get_terminal_size().columns >= width + max(map(len, causes.values())) + 4
    yield f"\n{paint('Answer', 'bold')}"
    for action, command in commands.items():
        if action != "resume":
            cause = paint(causes.get(action, ""), "dim")
            yield f"  {command.ljust(width)}  {cause}" if is_wide else f"  {command}\n      {cause}"
    yield f"\nThen go on: {commands['resume']}"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in plain(text).splitlines())


def _to_diff(text: str) -> str:
    import sys

    text = plain(text)
    return (paint_diff(text) if has_colour(sys.stdout) else text).rstrip("\n")


def _without_artifact(patch: str, artifact: str) -> str:
    """Return the other files of a patch: the artifact itself is shown in full."""
    files = [f"diff --git {part}" for part in patch.split("diff --git ") if part.strip()]
    return "".join(file for file in files if f"{artifact} b/" not in file.partition("\n")[0])
