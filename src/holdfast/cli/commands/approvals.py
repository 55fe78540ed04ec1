"""The commands about questions to a person: approvals, approvals show, approve and reject."""

from pathlib import PurePath
from typing import Annotated, Any

import typer

from holdfast.cli.terminal.approval_text import IN_DOUBT, describe_change, describe_deadline, describe_request
from holdfast.cli.terminal.arguments import (
    JSON,
    STORE,
    find_approval,
    find_approval_id,
    find_repository,
    get_user,
    is_interactive,
)
from holdfast.cli.terminal.completion import complete_approvals
from holdfast.cli.terminal.flow_runs import decide_flow, find_flow_question, print_question, read_flow_questions
from holdfast.cli.terminal.output import mark, paint, plain, print_json, print_text, waiting_notice
from holdfast.errors import ApprovalNotFound
from holdfast.persistence.raw_sql import read_approvals, read_open_runs
from holdfast.presentation.format import moment

APPROVAL = Annotated[
    str,
    typer.Argument(
        metavar="APPROVAL", help="An approval's id, or the beginning of it.", autocompletion=complete_approvals
    ),
]
COMMENT = Annotated[
    str, typer.Option("--comment", metavar="TEXT", help="The reason; the agent reads it if it has to change something.")
]


def approvals(as_json: JSON = False, store: STORE = None) -> None:
    """List what waits for a person.

    Example: holdfast approvals
    """
    found, of_flows = read_waiting(), read_flow_questions()
    if as_json:
        print_json([*found, *of_flows])
        return
    for row in of_flows:
        print_question(row["run_id"], row["key"], row["about"], row["shown"])
    if not found and not of_flows:
        print_text("Nothing waits for you.")
    places = _read_places() if found else {}
    for row in found:
        details = row["shown"] if isinstance(row["shown"], dict) else {}
        short = paint(row["approval_id"][:8], "bold")
        workflow, repository = places.get(row["run_id"], ("", ""))
        where = f"run {row['run_id'][:8]} in {repository}"
        print_text(f"{mark('paused')} {short}  {row['phase_key']} of {workflow}, {where}")
        since = moment(row["requested_at"])
        if row["about"] == "outcome":
            _show_doubt(row, details, since)
            continue
        if details.get("question"):
            print_text(f"    {plain(str(details['question']))}\n    {describe_request(details)}\n    since {since}")
            print_text(f"    holdfast approve {row['approval_id'][:8]}, or holdfast reject {row['approval_id'][:8]}")
            print_text(f"    in full: holdfast approvals show {row['approval_id'][:8]}")
            continue
        when = f"since {since}{describe_deadline(row)}"
        print_text(f"    {details.get('artifact', '')} · {describe_change(details)} · {when}")
        following = ", ".join(details.get("next") or []) or "the run's end"
        print_text(f"    approve leads to {following}: holdfast approve {row['approval_id'][:8]}")
        print_text(f"    in full: holdfast approvals show {row['approval_id'][:8]}")


def read_waiting() -> list[dict[str, Any]]:
    """Return the approvals that wait for a person now. Those past their deadline are answered first, durably."""
    from holdfast.persistence.statements import now_text

    found = read_approvals(state="pending", of_open_runs=True)
    if any(row["deadline_at"] and row["deadline_at"] <= now_text() for row in found):
        import asyncio

        asyncio.run(_decide_overdue())
        found = read_approvals(state="pending", of_open_runs=True)
    return found


async def _decide_overdue() -> None:
    from holdfast.cli.terminal.engine import open_engine

    async with open_engine() as (engine, _db, _config):
        await engine.decide_overdue()


def _read_places() -> dict[str, tuple[str, str]]:
    """Return the workflow and the repository's name of each run that is not over, by run."""
    return {row["id"]: (row["workflow"], PurePath(row["repo_path"]).name) for row in read_open_runs()}


def _show_doubt(row: dict[str, Any], details: dict[str, Any], since: str) -> None:
    from holdfast.presentation.status import describe_start

    short = row["approval_id"][:8]
    print_text(f"    {IN_DOUBT}\n    {describe_request(details)}{plain(describe_start(details))}\n    since {since}")
    print_text(f"    it happened: holdfast approve {short} --result TEXT")
    print_text(f"    run it again: holdfast approve {short} · fail the phase: holdfast reject {short}")


def show_approval(
    approval: Annotated[
        str,
        typer.Argument(
            metavar="APPROVAL",
            help="An approval's id, or the beginning of it, or a run's.",
            autocompletion=complete_approvals,
        ),
    ],
    as_json: JSON = False,
    store: STORE = None,
) -> None:
    """Show what is to be approved, why it is asked, and the commands to answer.

    Example: holdfast approvals show 91c4
    """
    from holdfast.cli.terminal.approval_view import describe_approval, read_approval

    if found := find_flow_question(approval):
        run_id, key = found
        row = next((each for each in read_flow_questions() if (each["run_id"], each["key"]) == (run_id, key)), None)
        if row is None:
            raise ApprovalNotFound(f"Nothing called {key!r} waits in run {run_id}.", hint="See: holdfast approvals")
        if as_json:
            print_json(row)
        else:
            print_question(run_id, key, row["about"], row["shown"])
        return
    facts = read_approval(find_approval_id(approval))
    if as_json:
        print_json(facts)
        return
    for text in describe_approval(facts):
        print_text(text)


def approve(
    approval: APPROVAL,
    comment: COMMENT = "",
    result: Annotated[
        str | None,
        typer.Option("--result", metavar="TEXT", help="For a call in doubt: it happened and returned this."),
    ] = None,
    args: Annotated[
        str | None,
        typer.Option("--args", metavar="JSON", help="For a tool call: make it with these arguments instead."),
    ] = None,
    for_run: Annotated[
        bool, typer.Option("--for-run", help="For a tool call: allow all calls of its kind in this run.")
    ] = False,
    artifact: Annotated[
        str | None,
        typer.Option("--artifact", metavar="FILE|-", help="For a phase: approve it with this artifact instead."),
    ] = None,
    edit: Annotated[bool, typer.Option("--edit", help="For a phase: edit its artifact first, in your editor.")] = False,
    as_json: JSON = False,
    store: STORE = None,
) -> None:
    """Approve what a phase made, or a tool call. Then continue with holdfast resume.

    With --edit or --artifact the phase's artifact counts as you wrote it, if its schema accepts it. A call whose
    outcome is unknown is made again, unless --result says what it returned.

    Example: holdfast approve 91c4
    """
    if _answer_flow(approval, "approve", comment, result, is_json=as_json):
        return
    answer: dict[str, Any] = {} if result is None else {"result": result}
    if args is not None:
        answer["args"] = read_args(args)
    if for_run:
        answer["is_for_kind"] = True
    if edit or artifact is not None:
        answer |= _read_artifact(approval, artifact)
    _decide(approval, "approve", comment, is_json=as_json, **answer)


def reject(
    approval: APPROVAL,
    why: Annotated[str, typer.Argument(metavar="[COMMENT]", help="Why, or what to change.")] = "",
    comment: COMMENT = "",
    changes: Annotated[
        bool, typer.Option("--changes", help="Request another attempt instead of failing the run.")
    ] = False,
    as_json: JSON = False,
    store: STORE = None,
) -> None:
    """Reject what a phase made: the run fails. With --changes the phase runs again with your comment.

    A tool call is not made, and the agent learns why. A call in doubt counts as failed.

    Example: holdfast reject 91c4 --changes "Handle the empty file too"
    """
    if why and comment:
        raise typer.BadParameter("A comment was given twice.", param_hint="--comment")
    text = why or comment
    if changes and not text.strip():
        from holdfast.cli.terminal.answer_input import read_answer

        text = read_answer("What should change? > ") or "" if is_interactive() and not as_json else ""
        if not text:
            raise typer.BadParameter("Say what should change: --changes TEXT.", param_hint="--changes")
    action = "request_changes" if changes else "reject"
    if not _answer_flow(approval, action, text, None, is_json=as_json):
        _decide(approval, action, text, is_json=as_json)


def _answer_flow(approval: str, action: str, comment: str, result: str | None, *, is_json: bool) -> bool:
    """Answer the question of a flow, if that is what is meant; `result` is what a call in doubt has returned."""
    import json

    found = find_flow_question(approval)
    if found is None:
        return False
    run_id, key = found
    answer: dict[str, Any] = {"comment": comment, "by": get_user()}
    if result is not None:
        action = "done"
        try:
            answer["result"] = json.loads(result)
        except ValueError:
            answer["result"] = result  # a text, as most results of a person are
    decide_flow(run_id, key, action, **answer)
    if is_json:
        print_json({"approval_id": f"{run_id}:{key}", "run_id": run_id, "action": action})
    else:
        print_text(f"✓ {action.replace('_', ' ')}: recorded. Whoever drives the flow goes on with it.")
    return True


def read_args(text: str) -> dict[str, Any]:
    """Parse the arguments of a tool call as a person writes them, in JSON. Raises `ConfigInvalid`."""
    import json

    from holdfast.errors import ConfigInvalid

    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ConfigInvalid(
            "The arguments of a tool call are a JSON object.",
            hint="""Such as --args '{"command": "ls"}'.""",
            key="args",
        )
    return found


def _read_artifact(approval: str, source: str | None) -> dict[str, Any]:
    """Return the artifact as the person wrote it, with the digest of what they saw; nothing if they changed nothing."""
    from holdfast.cli.terminal.approval_view import read_approval
    from holdfast.cli.terminal.editor import edit_text
    from holdfast.cli.terminal.requirements import read_source

    if source is not None:
        return {"artifact": read_source(source, option="--artifact")}
    if not is_interactive():
        raise typer.BadParameter("An editor needs a terminal. Use --artifact FILE.", param_hint="--edit")
    facts = read_approval(find_approval(approval)[0])
    before = str(facts["content"] or "")
    text = edit_text(before, suffix=".json")
    return {} if text.strip() == before.strip() else {"artifact": f"{text.strip()}\n", "digest": facts["digest"]}


def _decide(approval: str, action: str, comment: str, *, is_json: bool, **answer: Any) -> None:
    import asyncio

    approval_id, run_id = find_approval(approval)
    is_taken = asyncio.run(_send(run_id, approval_id, action, comment, **answer))
    if is_json:
        print_json({"approval_id": approval_id, "run_id": run_id, "action": action})
    else:
        following = f"A worker goes on with it: holdfast runs watch {run_id[:8]}" if is_taken else ""
        following = following or f"Go on: holdfast resume {run_id[:8]}"
        print_text(f"✓ {action.replace('_', ' ')}: recorded. {following}")


async def _send(run_id: str, approval_id: str, action: str, comment: str, **answer: Any) -> bool:
    """Record the answer; return whether there are workers, who go on with the run by themselves."""
    with waiting_notice("writing it down …"):
        from holdfast.cli.terminal.engine import open_engine
        from holdfast.persistence.fleet import list_workers

    async with open_engine(repo=find_repository(run_id), is_leaving=True) as (engine, db, _config):
        await engine.decide(run_id, approval_id, action, comment=comment, by=get_user(), **answer)
        workers = await list_workers(db) if db.path is None else []
    return any(worker.is_alive and not worker.is_draining for worker in workers)
