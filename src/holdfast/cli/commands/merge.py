"""The command that brings a run's result to its user."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.terminal.answer_input import confirm
from holdfast.cli.terminal.arguments import JSON, RUN_ID, find_run_id, get_user, is_interactive
from holdfast.cli.terminal.output import EXIT_FAILED, plain, print_json, print_text, say
from holdfast.errors import TargetBranchMissing, WorkspaceConflict

if TYPE_CHECKING:
    from holdfast.engine.merge import MergeRequest

_DRY = " Nothing was changed."


def merge(
    run_id: RUN_ID,
    into: Annotated[
        str | None,
        typer.Option("--into", metavar="BRANCH", help="The branch to merge into; by default the run's base."),
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="Create the branch if there is none of that name.")] = False,
    pull_request: Annotated[
        bool, typer.Option("--pull-request", help="Push it to a branch of its own, and get the host's form.")
    ] = False,
    squash: Annotated[bool, typer.Option("--squash", help="Merge as one commit.")] = False,
    message: Annotated[str, typer.Option("--message", "-m", metavar="TEXT", help="The commit's message.")] = "",
    keep: Annotated[bool, typer.Option("--keep", help="Do not remove the run's worktree and branch.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would happen, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JSON = False,
) -> None:
    """Merge a run's result into your branch as commits, without holdfast's own files and what setup made.

    Then the worktree and the branch of a run that is over are removed; runs show and runs diff still work.
    With --pull-request the result is pushed to your clone's remote at GitHub, GitLab, Bitbucket or Gitea.

    Example: holdfast merge 3f2a --squash -m "Add a --verbose flag"
    """
    import asyncio

    from holdfast.engine.merge import MergeRequest

    if pull_request and into:
        raise typer.BadParameter("A pull request has a branch of its own.", param_hint="--into")
    request = MergeRequest(into, create, squash, message, dry_run, keep, pull_request)
    try:
        merged = asyncio.run(_merge(find_run_id(run_id), request, can_ask=is_interactive() and not as_json and not yes))
    except WorkspaceConflict as conflict:
        if dry_run:
            _show_conflict(conflict, as_json=as_json)
            raise typer.Exit(1) from None
        raise
    if as_json:
        print_json(merged)
    else:
        _show(merged)


async def _merge(run_id: str, request: "MergeRequest", *, can_ask: bool) -> dict[str, Any]:
    from dataclasses import replace

    from holdfast.cli.terminal.engine import open_engine
    from holdfast.engine.merge import merge_run

    async with open_engine() as (_engine, db, config):
        try:
            # Only another branch than the run's own can get more than the result; then it is asked for first.
            if can_ask and request.into and not request.is_dry_run:
                preview = await merge_run(db, config, run_id, replace(request, is_dry_run=True))
                if preview.get("base_commits") and not _agrees(preview["message"].removesuffix(_DRY)):
                    raise typer.Exit(EXIT_FAILED)
            if can_ask and request.is_pull_request and not request.is_dry_run:
                _show(await merge_run(db, config, run_id, replace(request, is_dry_run=True)))
                if not confirm("Push the branch?"):
                    raise typer.Exit(EXIT_FAILED)
            return await merge_run(db, config, run_id, request, by=get_user())
        except TargetBranchMissing as missing:
            question = f"There is no branch {missing.branch!r}. Make it?"
            if not (can_ask and missing.can_be_made and confirm(plain(question))):
                raise
        return await merge_run(db, config, run_id, replace(request, can_create=True), by=get_user())


def _agrees(preview: str) -> bool:
    """Show what a merge would bring beside the result, and ask; a no changes nothing."""
    say(plain(preview))
    if confirm("Merge it all?"):
        return True
    say("Nothing was merged.")
    return False


def _show(merged: dict[str, Any]) -> None:
    from holdfast.engine.patch import describe_left_out
    from holdfast.workspace import LeftOutGroup

    print_text(plain(merged["message"]))
    if merged["is_simulated"] and (merged.get("files") or merged.get("paths")):
        print_text("This was a rehearsal: its files are placeholders of the simulated model.")
    if merged.get("dry_run"):
        for subject in merged.get("commits", ()):
            print_text(f"  commit: {plain(subject)}")
        for file in merged.get("files", ()):
            lines = "binary" if file["added"] is None else f"+{file['added']} −{file['removed']}"
            print_text(f"  {plain(file['path'])} ({lines})")
        for path in merged.get("paths", ()):
            print_text(f"  {plain(path)}")
    if merged.get("link") and not merged.get("dry_run"):
        print_text(f"Open the form: {plain(merged['link'])}")
    for line in describe_left_out(LeftOutGroup(**group) for group in merged["left_out"]):
        print_text(plain(line))


def _show_conflict(conflict: WorkspaceConflict, *, as_json: bool) -> None:
    if as_json:
        paths = [path.encode(errors="replace").decode() for path in conflict.paths]
        print_json({"dry_run": True, "message": conflict.message, "conflicts": paths})
        return
    print_text(plain(conflict.message))
    for path in conflict.paths:
        print_text(f"  conflict: {plain(path)}")
