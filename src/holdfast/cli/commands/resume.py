"""The command resume: go on with a run that was interrupted, or that waited."""

from typing import Annotated, Any, Literal

import typer

from holdfast.cli.terminal.arguments import JSON, RUN_ID, YES, find_run_id, get_user, is_interactive
from holdfast.cli.terminal.requirements import PERSONA, REQUIREMENTS, REQUIREMENTS_FILE, UNSANDBOXED, read_change


def resume(
    run_id: RUN_ID,
    yes: YES = False,
    accept_drift: Annotated[
        bool, typer.Option("--accept-drift", help="Continue although the prompt, tools or model have changed.")
    ] = False,
    requirements: REQUIREMENTS = None,
    requirements_file: REQUIREMENTS_FILE = None,
    persona: PERSONA = None,
    unsandboxed: UNSANDBOXED = False,
    as_json: JSON = False,
) -> None:
    """Continue a run that was interrupted, or that waited for you.

    Other personas or requirements start a new attempt of the phase that is running.

    Example: holdfast resume 3f2a
    """
    options = {"accept_drift": True} if accept_drift else {}
    change = read_change(requirements, requirements_file, persona, is_unsandboxed=unsandboxed)
    drive_on(run_id, "resume", is_yes=yes, is_json=as_json, change=change, **options)


def drive_on(
    prefix: str,
    verb: Literal["resume", "retry"],
    *,
    is_json: bool,
    is_yes: bool,
    change: dict[str, Any],
    **options: Any,
) -> None:
    """Change a run if there is something to change, drive it on in front of the person, and exit with its code."""
    import asyncio

    moved = _drive(find_run_id(prefix), verb, is_json=is_json, is_yes=is_yes, change=change, **options)
    raise typer.Exit(asyncio.run(moved))


async def _drive(run_id: str, verb: str, *, is_json: bool, is_yes: bool, change: dict[str, Any], **options: Any) -> int:

    from holdfast.cli.commands.trust import agree_to_change
    from holdfast.cli.terminal.arguments import find_repository
    from holdfast.cli.terminal.output import finish, plain, say, waiting_notice
    from holdfast.persistence.raw_sql import read_phase_keys

    with waiting_notice("starting …"):
        from holdfast.cli.terminal.drive import drive
        from holdfast.cli.terminal.engine import YesToAll, open_engine

    callback = YesToAll() if is_yes else None
    opened = open_engine(
        repo=find_repository(run_id),
        callback=callback,
        consents=agree_to_change(run_id, change, is_yes=is_yes, is_json=is_json),
    )
    async with opened as (engine, db, _config):
        if change:
            changed = await engine.change(run_id, is_retry=verb == "retry", by=get_user(), **change)
            # crash: the change stands, and the run is as it was otherwise; the same command again goes on.
            say(plain(changed.describe()))
        end = await drive(
            engine,
            db,
            run_id,
            lambda: getattr(engine, verb)(run_id, **options),
            phase_keys=read_phase_keys(run_id),
            can_ask=is_interactive() and not is_json,
        )
        return finish(end.result, is_json=is_json, is_interrupted=end.is_interrupted)
