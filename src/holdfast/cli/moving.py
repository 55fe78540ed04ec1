"""The commands that move a run: resume, retry, pause, abort, fork."""

from typing import Annotated, Any

import typer

from holdfast.cli.options import JSON, RUN_ID, YES, get_user, is_interactive


def resume(
    run_id: RUN_ID,
    yes: YES = False,
    accept_drift: Annotated[
        bool, typer.Option("--accept-drift", help="Go on although prompt, tools or model have changed since.")
    ] = False,
    as_json: JSON = False,
) -> None:
    """Go on with a run that was interrupted, or that waited for you.

    Example: holdfast resume 3f2a
    """
    options = {"accept_drift": True} if accept_drift else {}
    _move(run_id, "resume", is_yes=yes, is_json=as_json, **options)


def retry(run_id: RUN_ID, yes: YES = False, as_json: JSON = False) -> None:
    """Open a failed run again at the phase that failed.

    Example: holdfast retry 3f2a
    """
    _move(run_id, "retry", is_yes=yes, is_json=as_json)


def fork(
    run_id: RUN_ID,
    phase: Annotated[str, typer.Argument(metavar="PHASE", help="The phase to begin with.")],
    yes: YES = False,
    as_json: JSON = False,
) -> None:
    """Start a new run from where another stood before a phase, files included.

    Example: holdfast fork 3f2a implement
    """
    _check_phase(run_id, phase)
    _tell_owner(run_id, "fork", phase, is_yes=yes, is_json=as_json, started_by=get_user())


def pause(run_id: RUN_ID, as_json: JSON = False) -> None:
    """Stop a run durably until someone resumes it; what is in flight is recorded first.

    Example: holdfast pause 3f2a
    """
    _tell_owner(run_id, "pause", is_json=as_json, is_success_if="paused", by=get_user())


def abort(
    run_id: RUN_ID,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it stands in the report.")] = "",
    as_json: JSON = False,
) -> None:
    """End a run for good; what it made is kept.

    Example: holdfast abort 3f2a --reason "wrong repository"
    """
    _tell_owner(run_id, "abort", is_json=as_json, is_success_if="cancelled", reason=reason, by=get_user())


def _move(given: str, verb: str, *, is_json: bool, is_yes: bool, **options: Any) -> None:
    import asyncio

    from holdfast.cli.reading import find_run_id

    raise typer.Exit(asyncio.run(_drive(find_run_id(given), verb, is_json=is_json, is_yes=is_yes, **options)))


async def _drive(run_id: str, verb: str, *, is_json: bool, is_yes: bool, **options: Any) -> int:
    import asyncio

    from holdfast.cli.output import finish, told_to_wait
    from holdfast.cli.reading import find_repository
    from holdfast.persistence.plain import query

    with told_to_wait("starting …"):
        from holdfast.cli.driving import drive
        from holdfast.cli.opening import YesToAll, open_engine

    phases = query("SELECT phase_key FROM run_phases WHERE run_id = :id ORDER BY position", {"id": run_id})
    callback = YesToAll() if is_yes else None
    interrupted = asyncio.Event()
    async with open_engine(repo=find_repository(run_id), callback=callback) as (engine, db, _config):
        result = await drive(
            engine,
            db,
            run_id,
            lambda: getattr(engine, verb)(run_id, **options),
            phase_keys=[row["phase_key"] for row in phases],
            can_ask=is_interactive() and not is_json,
            after=db.store.read_heads([run_id]).get(run_id, 0),
            interrupted=interrupted,
        )
        return finish(result, is_json=is_json, is_interrupted=interrupted.is_set())


def _tell_owner(
    given: str, verb: str, *args: str, is_json: bool, is_yes: bool = False, is_success_if: str = "", **options: Any
) -> None:
    """Ask for something that is over soon, or that is another run's: nothing is watched meanwhile."""
    import asyncio

    from holdfast.cli.reading import find_run_id

    async def tell(run_id: str) -> int:
        from holdfast.cli.output import finish, told_to_wait
        from holdfast.cli.reading import find_repository

        with told_to_wait("starting …"):
            from holdfast.cli.opening import YesToAll, open_engine

        callback = YesToAll() if is_yes else None
        async with open_engine(repo=find_repository(run_id), callback=callback) as (engine, _db, _config):
            result = await getattr(engine, verb)(run_id, *args, **options)
            code = finish(result, is_json=is_json)
            return 0 if result.state.value == is_success_if else code

    raise typer.Exit(asyncio.run(tell(find_run_id(given))))


def _check_phase(given: str, phase: str) -> None:
    from holdfast.cli.lazy import did_you_mean
    from holdfast.cli.reading import find_run_id
    from holdfast.errors import ConfigInvalid
    from holdfast.persistence.plain import query

    rows = query("SELECT phase_key FROM run_phases WHERE run_id = :id ORDER BY position", {"id": find_run_id(given)})
    keys = [row["phase_key"] for row in rows]
    if keys and phase not in keys:
        hint = did_you_mean(phase, keys).strip() or f"Its phases are {', '.join(keys)}."
        raise ConfigInvalid(f"The run has no phase {phase!r}.", hint=hint, key="phase")
