"""The commands that move a run: resume, retry, pause, abort, fork."""

from typing import Annotated, Any

import typer

from holdfast.cli.terminal.arguments import JSON, RUN_ID, YES, get_user, is_interactive
from holdfast.cli.terminal.requirements import (
    PERSONA,
    REQUIREMENTS,
    REQUIREMENTS_FILE,
    read_overrides,
    read_requirements,
    refuse_missing,
)


def resume(
    run_id: RUN_ID,
    yes: YES = False,
    accept_drift: Annotated[
        bool, typer.Option("--accept-drift", help="Go on although prompt, tools or model have changed since.")
    ] = False,
    requirements: REQUIREMENTS = None,
    requirements_file: REQUIREMENTS_FILE = None,
    persona: PERSONA = None,
    as_json: JSON = False,
) -> None:
    """Go on with a run that was interrupted, or that waited for you.

    Other personas or requirements start a new attempt of the phase that is running.

    Example: holdfast resume 3f2a
    """
    options = {"accept_drift": True} if accept_drift else {}
    change = _read_change(requirements, requirements_file, persona)
    _move(run_id, "resume", is_yes=yes, is_json=as_json, change=change, **options)


def retry(
    run_id: RUN_ID,
    yes: YES = False,
    requirements: REQUIREMENTS = None,
    requirements_file: REQUIREMENTS_FILE = None,
    persona: PERSONA = None,
    as_json: JSON = False,
) -> None:
    """Open a failed run again at the phase that failed, with other personas or requirements if you give them.

    Example: holdfast retry 3f2a --persona implementer=anthropic-developer
    """
    change = _read_change(requirements, requirements_file, persona)
    _move(run_id, "retry", is_yes=yes, is_json=as_json, change=change)


def fork(
    run_id: RUN_ID,
    phase: Annotated[str, typer.Argument(metavar="PHASE", help="The phase to begin with.")],
    yes: YES = False,
    requirements: REQUIREMENTS = None,
    requirements_file: REQUIREMENTS_FILE = None,
    persona: PERSONA = None,
    as_json: JSON = False,
) -> None:
    """Start a new run from where another stood before a phase, files included.

    Other personas or requirements count in the new run, from that phase on.

    Example: holdfast fork 3f2a implement --requirements "Add a --quiet flag instead"
    """
    _check_phase(run_id, phase)
    change = _read_change(requirements, requirements_file, persona)
    _tell_owner(run_id, "fork", phase, is_yes=yes, is_json=as_json, change=change, started_by=get_user())


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


def _read_change(text: str | None, file: str | None, personas: list[str] | None) -> dict[str, Any]:
    """Read what is to be different, as the engine takes it; empty if nothing is. Raises `BadParameter`."""
    change: dict[str, Any] = {}
    if overrides := read_overrides(personas):
        change["persona_overrides"] = overrides
    new_text = read_requirements(text, file)
    if new_text is not None:
        if not new_text.strip():
            raise refuse_missing()
        change["requirements_md"] = new_text
    return change


def _move(prefix: str, verb: str, *, is_json: bool, is_yes: bool, change: dict[str, Any], **options: Any) -> None:
    import asyncio

    from holdfast.cli.terminal.arguments import find_run_id

    moved = _drive(find_run_id(prefix), verb, is_json=is_json, is_yes=is_yes, change=change, **options)
    raise typer.Exit(asyncio.run(moved))


async def _drive(run_id: str, verb: str, *, is_json: bool, is_yes: bool, change: dict[str, Any], **options: Any) -> int:
    import asyncio

    from holdfast.cli.terminal.arguments import find_repository
    from holdfast.cli.terminal.output import finish, plain, say, waiting_notice
    from holdfast.persistence.raw_sql import read_phase_keys

    with waiting_notice("starting …"):
        from holdfast.cli.terminal.drive import drive
        from holdfast.cli.terminal.engine import YesToAll, open_engine

    callback = YesToAll() if is_yes else None
    interrupted = asyncio.Event()
    opened = open_engine(
        repo=find_repository(run_id), callback=callback, consents=_agree(run_id, change, is_yes=is_yes, is_json=is_json)
    )
    async with opened as (engine, db, _config):
        if change:
            changed = await engine.change(run_id, is_retry=verb == "retry", by=get_user(), **change)
            # crash: the change stands, and the run is as it was otherwise; the same command again goes on.
            say(plain(changed.describe()))
        result = await drive(
            engine,
            db,
            run_id,
            lambda: getattr(engine, verb)(run_id, **options),
            phase_keys=read_phase_keys(run_id),
            can_ask=is_interactive() and not is_json,
            after=db.store.read_heads([run_id]).get(run_id, 0),
            interrupted=interrupted,
        )
        return finish(result, is_json=is_json, is_interrupted=interrupted.is_set())


def _tell_owner(
    prefix: str,
    verb: str,
    *args: str,
    is_json: bool,
    is_yes: bool = False,
    is_success_if: str = "",
    change: dict[str, Any] | None = None,
    **options: Any,
) -> None:
    """Ask for something that is over soon, or that is another run's: nothing is watched meanwhile."""
    import asyncio

    from holdfast.cli.terminal.arguments import find_run_id

    async def tell(run_id: str) -> int:
        from holdfast.cli.terminal.arguments import find_repository
        from holdfast.cli.terminal.output import finish, waiting_notice

        with waiting_notice("starting …"):
            from holdfast.cli.terminal.engine import YesToAll, open_engine

        callback = YesToAll() if is_yes else None
        consents = _agree(run_id, change or {}, is_yes=is_yes, is_json=is_json)
        opened = open_engine(repo=find_repository(run_id), callback=callback, consents=consents)
        async with opened as (engine, _db, _config):
            result = await getattr(engine, verb)(run_id, *args, **(change or {}), **options)
            code = finish(result, is_json=is_json)
            return 0 if result.state.value == is_success_if else code

    raise typer.Exit(asyncio.run(tell(find_run_id(prefix))))


def _agree(run_id: str, change: dict[str, Any], *, is_yes: bool, is_json: bool) -> Any:
    """Ask for consent to the personas of a change; return where consents are found, `None` for the usual place."""
    from holdfast.cli.commands.trust import agree_to_personas
    from holdfast.cli.terminal.arguments import find_repository

    repo = find_repository(run_id)
    if repo is None or not change.get("persona_overrides"):
        return None
    can_ask = is_interactive() and not is_json
    return agree_to_personas(repo, set(change["persona_overrides"].values()), is_yes=is_yes, can_ask=can_ask)


def _check_phase(prefix: str, phase: str) -> None:
    from holdfast.cli.lazy import did_you_mean
    from holdfast.cli.terminal.arguments import find_run_id
    from holdfast.errors import ConfigInvalid
    from holdfast.persistence.raw_sql import read_phase_keys

    keys = read_phase_keys(find_run_id(prefix))
    if keys and phase not in keys:
        hint = did_you_mean(phase, keys).strip() or f"Its phases are {', '.join(keys)}."
        raise ConfigInvalid(f"The run has no phase {phase!r}.", hint=hint, key="phase")
