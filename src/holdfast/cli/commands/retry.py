"""The command retry: reopen a failed run.

What was done before the phase or the step that failed is not done again.
"""

import typer

from holdfast.cli.commands.resume import drive_flow, find_definition, go_on, show_detached_flow
from holdfast.cli.terminal.arguments import (
    DETACH,
    FLOWS,
    JSON,
    RUN_ID,
    STORE,
    YES,
    check_detached,
    find_run_id,
    get_user,
)
from holdfast.cli.terminal.requirements import IMAGE, PERSONA, REQUIREMENTS, REQUIREMENTS_FILE, UNSANDBOXED, read_change
from holdfast.persistence.flow_listings import find_flow_run


def retry(
    run_id: RUN_ID,
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
    """Reopen a failed run at the phase that failed, or a flow at the step that failed.

    Other personas and requirements, and more images, apply from that phase on. A flow whose module is named goes on in
    this process; otherwise, and with --detach, a server, worker or program that knows it takes it.

    Example: holdfast retry 3f2a --persona implementer=anthropic-developer
    """
    if detach:
        check_detached(is_yes=yes, flows=flows)
    if find_flow_run(full_id := find_run_id(run_id)):
        raise typer.Exit(_retry_flow(full_id, flows, is_detached=detach, is_json=as_json))
    change = read_change(requirements, requirements_file, personas=persona, images=image, is_unsandboxed=unsandboxed)
    go_on(full_id, "retry", is_detached=detach, is_yes=yes, is_json=as_json, change=change)


def _retry_flow(run_id: str, modules: list[str] | None, *, is_detached: bool, is_json: bool) -> int:
    import asyncio

    from holdfast.cli.terminal.store import name_configured_store
    from holdfast.flows.answers import retry_flow

    definition = None if is_detached else find_definition(run_id, modules)[0]
    # The request first, also for this process: what is not failed is refused, and a crash from here on forgets nothing.
    asyncio.run(retry_flow(run_id, store=name_configured_store(), by=get_user()))
    if definition is not None or modules:
        return drive_flow(run_id, modules, is_json=is_json)
    return show_detached_flow(run_id, "pending", is_json=is_json)
