"""The commands that answer: approve and reject."""

import asyncio
from typing import Annotated

import typer

from holdfast.cli.running import JSON
from holdfast.errors import ApprovalNotFound

APPROVAL = Annotated[str, typer.Argument(metavar="APPROVAL", help="An approval's id, or the beginning of it.")]
COMMENT = Annotated[str, typer.Option("--comment", help="Why; the agent reads it if it has to change something.")]


def approve(approval: APPROVAL, comment: COMMENT = "", as_json: JSON = False) -> None:
    """Say yes to what a phase made; holdfast resume then goes on.

    Example: holdfast approve 91c4
    """
    _decide(approval, "approve", comment, is_json=as_json)


def reject(
    approval: APPROVAL,
    comment: COMMENT = "",
    changes: Annotated[bool, typer.Option("--changes", help="Ask for another attempt instead of failing.")] = False,
    as_json: JSON = False,
) -> None:
    """Say no: the run fails, or with --changes the phase runs again with your comment.

    Example: holdfast reject 91c4 --changes --comment "Handle the empty file too"
    """
    _decide(approval, "request_changes" if changes else "reject", comment, is_json=as_json)


def _decide(given: str, action: str, comment: str, *, is_json: bool) -> None:
    from holdfast.cli.output import print_json
    from holdfast.cli.reading import query

    found = query(
        "SELECT id, run_id FROM approvals WHERE id = :id OR id LIKE :prefix", {"id": given, "prefix": f"{given}%"}
    )
    if len(found) != 1:
        what = "is the beginning of several approvals" if found else "is no approval"
        raise ApprovalNotFound(f"{given!r} {what}.", hint="See what waits: holdfast approvals")
    approval_id, run_id = found[0]["id"], found[0]["run_id"]
    asyncio.run(_send(run_id, approval_id, action, comment))
    if is_json:
        print_json({"approval_id": approval_id, "run_id": run_id, "action": action})
    else:
        typer.echo(f"{action.replace('_', ' ')}: recorded. Go on: holdfast resume {run_id[:8]}")


async def _send(run_id: str, approval_id: str, action: str, comment: str) -> None:
    from holdfast.cli.opening import open_engine
    from holdfast.cli.running import _repository_of, _user

    async with open_engine(repo=_repository_of(run_id)) as (engine, _db, _config):
        await engine.decide(run_id, approval_id, action, comment=comment, by=_user())
