"""The command resume: go on with a run that was interrupted, or that waited."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

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
    is_interactive,
)
from holdfast.cli.terminal.flow_runs import print_question, read_flow
from holdfast.cli.terminal.output import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_WAITING,
    finish,
    plain,
    print_json,
    print_text,
    say,
    show_detached,
    show_waiting,
    waiting_notice,
)
from holdfast.cli.terminal.requirements import IMAGE, PERSONA, REQUIREMENTS, REQUIREMENTS_FILE, UNSANDBOXED, read_change
from holdfast.cli.terminal.store import name_configured_store, read_events
from holdfast.enums import PauseReason, RunStatus
from holdfast.errors import ConfigInvalid, HoldfastError, RunPaused
from holdfast.persistence.flow_listings import find_flow_run

if TYPE_CHECKING:
    from holdfast.engine.results import RunResult
    from holdfast.flows.service.flow_registry import FlowDefinition
    from holdfast.runtime.checkpoint.base import JournalStore


def resume(
    run_id: RUN_ID,
    yes: YES = False,
    accept_drift: Annotated[
        bool, typer.Option("--accept-drift", help="Continue although the prompt, tools or model have changed.")
    ] = False,
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
    """Continue a run that was interrupted, or that waited for you.

    A flow goes on in this process; --flows, or the setting flows, names its module. Other personas or requirements, and
    more images, start a new attempt of the phase that is running. With --detach a server or a worker continues it.

    Example: holdfast resume 3f2a
    """
    if detach:
        check_detached(is_yes=yes, flows=flows)
    if row := find_flow_run(full_id := find_run_id(run_id)):
        raise typer.Exit(_leave_flow(row, is_json=as_json) if detach else drive_flow(full_id, flows, is_json=as_json))
    options = {"accept_drift": True} if accept_drift else {}
    change = read_change(requirements, requirements_file, personas=persona, images=image, is_unsandboxed=unsandboxed)
    go_on(full_id, "resume", is_detached=detach, is_yes=yes, is_json=as_json, change=change, **options)


def _leave_flow(row: Mapping[str, Any], *, is_json: bool) -> int:
    """Leave a flow to whoever drives flows: one that nobody drives is taken without a word, as one that is due."""
    import asyncio

    from holdfast.flows.answers import resume_flow

    run_id, state = row["run_id"], row["state"]
    if questions := read_flow(run_id).questions:
        if is_json:
            print_json({"run_id": run_id, "state": state})
        for question in questions:
            print_question(run_id, question.key, question.about, question.show, to=say if is_json else print_text)
        return EXIT_WAITING
    if state not in (RunStatus.PENDING, RunStatus.RUNNING) or row["is_driven"]:
        asyncio.run(resume_flow(run_id, store=name_configured_store(), by=get_user()))
    waits_for = row["waits_for"] if state == RunStatus.PENDING else None
    return show_detached_flow(run_id, state, is_json=is_json, waits_for=waits_for)


def show_detached_flow(run_id: str, state: str, *, is_json: bool, waits_for: str | None = None) -> int:
    """Say who goes on with a flow that is not driven here."""
    if is_json:
        print_json({"run_id": run_id, "state": state})
    if waits_for:
        say(f"Run {run_id} stands in line: it waits for {waits_for}.")
    else:
        say(f"Run {run_id} goes on as soon as a server, worker or program that knows its flow takes it.")
    return EXIT_DONE


def go_on(
    run_id: str,
    verb: Literal["resume", "retry"],
    *,
    is_detached: bool,
    is_json: bool,
    is_yes: bool,
    change: dict[str, Any],
    **options: Any,
) -> None:
    """Change a run if there is something to change, then drive it on in front of the person, or leave that to others;
    and exit with its code.
    """
    import asyncio

    move = _leave if is_detached else _drive
    raise typer.Exit(asyncio.run(move(run_id, verb, is_json=is_json, is_yes=is_yes, change=change, **options)))


async def _leave(run_id: str, verb: str, *, is_json: bool, is_yes: bool, change: dict[str, Any], **options: Any) -> int:
    """Record that somebody wants the run to go on, with what is to be different: whoever drives runs takes it."""
    from holdfast.cli.commands.trust import agree_to_change
    from holdfast.cli.terminal.arguments import find_repository
    from holdfast.cli.terminal.engine import open_engine
    from holdfast.engine.run.job import job_of_run
    from holdfast.engine.run.load import get_run
    from holdfast.fleet.job_rows import make_job_writer
    from holdfast.persistence.statements import ask_resume, ask_retry
    from holdfast.runtime.events import EventKind, create_event

    consents = agree_to_change(run_id, change, is_yes=is_yes, is_json=is_json)
    opened = open_engine(repo=find_repository(run_id), consents=consents, is_leaving=True)
    async with opened as (engine, db, _config):
        request = create_event(run_id, EventKind.RUN_RESUME_REQUESTED, by=get_user(), verb=verb, **options)
        is_retry = verb == "retry"
        ask = ask_retry(run_id) if is_retry else ask_resume(run_id)
        wake = [ask, *job_of_run(make_job_writer(db), (await get_run(db, run_id)).run)]
        changed = await engine.change(run_id, is_retry=is_retry, then=[request], beside=wake, by=get_user(), **change)
        if change:
            say(plain(changed.describe()))
        result = await engine.result(run_id)
        if result.state is RunStatus.PAUSED and _waits_for_person(result, db.store, is_changed=bool(changed)):
            return show_waiting(result, is_json=is_json)
        show_detached(run_id, result.state, is_shared=db.path is None, is_json=is_json)
    return EXIT_DONE


def _waits_for_person(result: "RunResult", store: "JournalStore", *, is_changed: bool) -> bool:
    """Tell whether whoever takes a paused run comes no further than it is."""
    from holdfast.persistence.raw_sql import read_approvals
    from holdfast.runtime.events import EventKind

    run_id = str(result.run_id)
    if result.waiting_for != PauseReason.BUDGET or is_changed:
        return result.waiting_for == PauseReason.MESSAGE or bool(read_approvals(run_id, state="pending"))
    about_money = (EventKind.BUDGET_EXHAUSTED, EventKind.BUDGET_RAISED)
    kinds = [event.kind for event in store.list_events(run_id) if event.kind in about_money]
    return kinds[-1:] == [EventKind.BUDGET_EXHAUSTED]


async def _drive(run_id: str, verb: str, *, is_json: bool, is_yes: bool, change: dict[str, Any], **options: Any) -> int:
    from holdfast.cli.commands.trust import agree_to_change
    from holdfast.cli.terminal.arguments import find_repository
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


def drive_flow(run_id: str, modules: list[str] | None, *, is_json: bool) -> int:
    """Run a flow on in this process, by its name among the modules, and return the exit code."""
    import asyncio

    from holdfast.flows.run import run_flow
    from holdfast.flows.typed_values.call_record import restore_call

    definition, created = find_definition(run_id, modules)
    if definition is None:
        raise ConfigInvalid(
            f"No module that is named registers {created.get('flow')!r}, the flow of run {run_id}.",
            hint='Name its module: --flows shop.py, or in the settings: [flows] modules = ["package.module"]',
        )
    args, kwargs = restore_call(definition.function, created)
    error: Exception | None = None
    try:
        asyncio.run(run_flow(definition.function, *args, run_id=run_id, store=name_configured_store(), **kwargs))
    except RunPaused as paused:
        error = paused
    except HoldfastError:
        raise
    except Exception as raised:  # the flow's own, which the journal has
        error = raised
    return _show_flow(run_id, error, is_json=is_json)


def find_definition(run_id: str, modules: list[str] | None) -> "tuple[FlowDefinition | None, Mapping[str, Any]]":
    """Find the flow of a run in these modules, or in those of `[flows]`, and return what the run was created with."""
    from holdfast.config import load_config
    from holdfast.flows.service.flow_registry import find_flow, load_flows
    from holdfast.runtime.records import Records

    load_flows(modules or load_config().flows)
    created = Records(read_events(run_id)).created or {}
    return find_flow(str(created.get("flow", ""))), created


def _show_flow(run_id: str, error: Exception | None, *, is_json: bool) -> int:
    view = read_flow(run_id)
    if is_json:
        print_json({"run_id": run_id, "state": view.state, "result": view.result, "error": view.error})
    elif isinstance(error, RunPaused):
        for question in view.questions:
            print_question(run_id, question.key, question.about, question.show)
    elif error is not None:
        say(plain(f"run {run_id} failed: {type(error).__name__}: {error}"))
    else:
        print_text(f"run {run_id} is {view.state}")
    if isinstance(error, RunPaused):
        return EXIT_WAITING
    return EXIT_DONE if error is None else EXIT_FAILED
