"""The command fork: a new run from where another stood before a phase, or a flow before a step."""

from typing import Annotated, Any

import typer

from holdfast.cli.commands.resume import drive_flow, find_definition, show_detached_flow
from holdfast.cli.terminal.arguments import (
    DETACH,
    FLOWS,
    JSON,
    RUN_ID,
    STORE,
    YES,
    check_detached,
    find_repository,
    find_run_id,
    get_user,
)
from holdfast.cli.terminal.output import EXIT_DONE
from holdfast.cli.terminal.requirements import IMAGE, PERSONA, REQUIREMENTS, REQUIREMENTS_FILE, UNSANDBOXED, read_change
from holdfast.persistence.flow_listings import find_flow_run


def fork(
    run_id: RUN_ID,
    phase: Annotated[str, typer.Argument(metavar="PHASE", help="The phase to start with; of a flow the step's key.")],
    yes: YES = False,
    requirements: REQUIREMENTS = None,
    requirements_file: REQUIREMENTS_FILE = None,
    persona: PERSONA = None,
    image: IMAGE = None,
    unsandboxed: UNSANDBOXED = False,
    flows: FLOWS = None,
    detach: DETACH = False,
    as_json: JSON = False,
    store: STORE = None,
) -> None:
    """Start a new run from where another stood before a phase, files included, or a flow before a step.

    Other personas and requirements, and more images, apply to the new run, from that phase on. A flow whose module is
    named runs in this process; otherwise, and with --detach, a server, worker or program that knows it takes it.

    Example: holdfast fork 3f2a implement --requirements "Add a --quiet flag instead"
    """
    import asyncio

    if detach:
        check_detached(is_yes=yes, flows=flows)
    full_id = find_run_id(run_id)
    if find_flow_run(full_id):
        raise typer.Exit(_fork_flow(full_id, phase, flows, is_detached=detach, is_json=as_json))
    _check_phase(full_id, phase)
    change = read_change(requirements, requirements_file, personas=persona, images=image, is_unsandboxed=unsandboxed)
    raise typer.Exit(asyncio.run(_fork(full_id, phase, change, is_detached=detach, is_yes=yes, is_json=as_json)))


def _fork_flow(run_id: str, key: str, modules: list[str] | None, *, is_detached: bool, is_json: bool) -> int:
    import asyncio

    from holdfast.cli.terminal.store import name_configured_store
    from holdfast.flows.service.flow_fork import fork_flow

    definition = None if is_detached else find_definition(run_id, modules)[0]
    handle = asyncio.run(fork_flow(run_id, key, store=name_configured_store()))
    if definition is not None or modules:
        return drive_flow(handle.run_id, modules, is_json=is_json)
    return show_detached_flow(handle.run_id, "pending", is_json=is_json)


def _check_phase(run_id: str, phase: str) -> None:
    from holdfast.cli.lazy import did_you_mean
    from holdfast.errors import ConfigInvalid
    from holdfast.persistence.raw_sql import read_phase_keys

    keys = read_phase_keys(run_id)
    if keys and phase not in keys:
        hint = did_you_mean(phase, keys).strip() or f"Its phases are {', '.join(keys)}."
        raise ConfigInvalid(f"The run has no phase {phase!r}.", hint=hint, key="phase")


async def _fork(
    run_id: str, phase: str, change: dict[str, Any], *, is_detached: bool, is_yes: bool, is_json: bool
) -> int:
    from holdfast.cli.commands.trust import agree_to_change
    from holdfast.cli.terminal.output import finish, show_detached, waiting_notice

    with waiting_notice("starting …"):
        from holdfast.cli.terminal.engine import YesToAll, open_engine

    callback = YesToAll() if is_yes else None
    consents = agree_to_change(run_id, change, is_yes=is_yes, is_json=is_json)
    repo = find_repository(run_id)
    async with open_engine(repo=repo, callback=callback, consents=consents, is_leaving=is_detached) as opened:
        engine, db, _config = opened
        if is_detached:
            new_id = await engine.create_fork(run_id, phase, started_by=get_user(), **change)
            show_detached(new_id, "pending", is_shared=db.path is None, is_json=is_json)
            return EXIT_DONE
        result = await engine.fork(run_id, phase, started_by=get_user(), **change)
        return finish(result, is_json=is_json)
