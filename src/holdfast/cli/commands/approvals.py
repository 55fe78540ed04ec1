"""The commands that answer: approve and reject."""

from typing import Annotated, Any

import typer

from holdfast.cli.terminal.answer_input import read_answer
from holdfast.cli.terminal.arguments import JSON, find_approval, find_repository, get_user, is_interactive
from holdfast.cli.terminal.completion import complete_approvals
from holdfast.cli.terminal.output import print_json, print_text, waiting_notice

APPROVAL = Annotated[
    str,
    typer.Argument(
        metavar="APPROVAL", help="An approval's id, or the beginning of it.", autocompletion=complete_approvals
    ),
]
COMMENT = Annotated[
    str, typer.Option("--comment", metavar="TEXT", help="Why; the agent reads it if it has to change something.")
]


def approve(
    approval: APPROVAL,
    comment: COMMENT = "",
    result: Annotated[
        str | None,
        typer.Option("--result", metavar="TEXT", help="Of a call in doubt: it happened, and this is what it gave."),
    ] = None,
    args: Annotated[
        str | None,
        typer.Option("--args", metavar="JSON", help="Of a tool call: make it with these arguments instead."),
    ] = None,
    as_json: JSON = False,
) -> None:
    """Say yes to what a phase made or a tool wants; holdfast resume then goes on.

    A call whose outcome is unknown is made again, unless --result says what it gave.

    Example: holdfast approve 91c4
    """
    answer: dict[str, Any] = {} if result is None else {"result": result}
    if args is not None:
        answer["args"] = read_args(args)
    _decide(approval, "approve", comment, is_json=as_json, **answer)


def reject(
    approval: APPROVAL,
    why: Annotated[str, typer.Argument(metavar="[COMMENT]", help="Why, or what to change.")] = "",
    comment: COMMENT = "",
    changes: Annotated[bool, typer.Option("--changes", help="Ask for another attempt instead of failing.")] = False,
    as_json: JSON = False,
) -> None:
    """Say no: the run fails, or with --changes the phase runs again with your comment.

    The tool call in question is not made, and the agent learns why. A call in doubt counts as failed.

    Example: holdfast reject 91c4 --changes "Handle the empty file too"
    """
    if why and comment:
        raise typer.BadParameter("A comment was given twice.", param_hint="--comment")
    text = why or comment
    if changes and not text.strip():
        text = read_answer("What should change? > ") or "" if is_interactive() and not as_json else ""
        if not text:
            raise typer.BadParameter("Say what should change: --changes TEXT.", param_hint="--changes")
    _decide(approval, "request_changes" if changes else "reject", text, is_json=as_json)


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


def _decide(approval: str, action: str, comment: str, *, is_json: bool, **answer: Any) -> None:
    import asyncio

    approval_id, run_id = find_approval(approval)
    asyncio.run(_send(run_id, approval_id, action, comment, **answer))
    if is_json:
        print_json({"approval_id": approval_id, "run_id": run_id, "action": action})
    else:
        print_text(f"✓ {action.replace('_', ' ')}: recorded. Go on: holdfast resume {run_id[:8]}")


async def _send(run_id: str, approval_id: str, action: str, comment: str, **answer: Any) -> None:
    with waiting_notice("writing it down …"):
        from holdfast.cli.terminal.engine import open_engine

    async with open_engine(repo=find_repository(run_id)) as (engine, _db, _config):
        await engine.decide(run_id, approval_id, action, comment=comment, by=get_user(), **answer)
