"""The command pause: stop a run durably until someone resumes it."""

from typing import Any, Literal, NoReturn

import typer

from holdfast.cli.terminal.arguments import JSON, RUN_ID, find_repository, find_run_id, get_user
from holdfast.enums import RunStatus


def pause(run_id: RUN_ID, as_json: JSON = False) -> None:
    """Pause a run until someone resumes it.

    A model call in flight is given up; a coding agent or command goes on, and holdfast resume finds it again.

    Example: holdfast pause 3f2a
    """
    stop_run(run_id, "pause", RunStatus.PAUSED, is_json=as_json)


def stop_run(
    prefix: str, verb: Literal["pause", "abort"], goal: RunStatus, *, is_json: bool, **options: Any
) -> NoReturn:
    """Have a run stopped by whoever drives it, show how it stands, and exit: with 0 if it has come to its goal."""
    import asyncio

    raise typer.Exit(asyncio.run(_stop(find_run_id(prefix), verb, goal, is_json=is_json, **options)))


async def _stop(run_id: str, verb: str, goal: RunStatus, *, is_json: bool, **options: Any) -> int:
    from holdfast.cli.terminal.output import EXIT_DONE, finish, waiting_notice

    with waiting_notice("starting …"):
        from holdfast.cli.terminal.engine import open_engine

    async with open_engine(repo=find_repository(run_id)) as (engine, _db, _config):
        result = await getattr(engine, verb)(run_id, by=get_user(), **options)
        code = finish(result, is_json=is_json)
        return EXIT_DONE if result.state is goal else code
