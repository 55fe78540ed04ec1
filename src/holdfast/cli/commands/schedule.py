"""The commands about schedules: workflows and flows that are started by a cron line."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.agent_command import refuse_inside_agent_command
from holdfast.cli.commands.limits import with_database
from holdfast.cli.terminal.arguments import JSON, get_user
from holdfast.cli.terminal.requirements import (
    PERSONA,
    PRIORITY,
    QUEUE,
    REPOSITORY,
    REQUIREMENTS,
    REQUIREMENTS_FILE,
    read_overrides,
    read_requirements,
    refuse_missing,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from holdfast.config import Config
    from holdfast.persistence.db import Database
    from holdfast.persistence.schedule_table import Schedule

NAME = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]


def add(
    name: NAME,
    target: Annotated[str, typer.Argument(metavar="WORKFLOW", help="A workflow's name; with --flow a flow's.")],
    cron: Annotated[str, typer.Option("--cron", metavar="LINE", help="Minute, hour, day, month and weekday.")],
    zone: Annotated[str, typer.Option("--zone", metavar="NAME", help="The time zone, such as Europe/Berlin.")] = "UTC",
    missed: Annotated[
        str, typer.Option("--missed", help="Of times when nothing ran: skip them, start once, or all.")
    ] = "skip",
    overlap: Annotated[
        str, typer.Option("--overlap", help="While the run before is not over: skip the time, or queue the run.")
    ] = "skip",
    repo: REPOSITORY = ".",
    base: Annotated[str | None, typer.Option("--base", metavar="BRANCH", help="The branch to start from.")] = None,
    requirements: REQUIREMENTS = None,
    requirements_file: REQUIREMENTS_FILE = None,
    persona: PERSONA = None,
    simulate: Annotated[bool, typer.Option("--simulate", help="Rehearse with the simulated model.")] = False,
    budget: Annotated[
        float | None, typer.Option("--budget", metavar="USD", min=0, help="Let each run spend no more than this.")
    ] = None,
    queue: QUEUE = "",
    priority: PRIORITY = 0,
    flow: Annotated[bool, typer.Option("--flow", help="Start a flow of this name instead of a workflow.")] = False,
    arguments: Annotated[
        str | None, typer.Option("--arguments", metavar="JSON", help="The flow's keyword arguments, as an object.")
    ] = None,
    as_json: JSON = False,
) -> None:
    """Start a workflow or a flow again and again, by a cron line and a time zone.

    holdfast serve fires it, or a worker. The id of each run follows from the schedule and the time, so that none is
    started twice.

    Example: holdfast schedule add nightly spec-and-review --cron "30 2 * * 1-5" --requirements-file nightly.md
    """
    from holdfast.persistence.schedule_table import Schedule

    refuse_inside_agent_command("holdfast schedule add")
    options: dict[str, Any] = {
        "base_branch": base,
        "requirements_md": read_requirements(requirements, requirements_file),
        "persona_overrides": read_overrides(persona),
        "budget_usd": budget,
        "simulate": simulate,
        "queue": queue,
        "priority": priority,
        "arguments": _read_arguments(arguments),
    }
    schedule = Schedule(
        name=name,
        target=target,
        kind="flow" if flow else "workflow",
        cron=cron,
        zone=zone,
        missed=missed,
        overlap=overlap,
        repo_path="" if flow else _to_row(repo),
        options={key: value for key, value in options.items() if value},
        created_by=get_user(),
    )
    stored = with_database(lambda db, config: _add(db, config, schedule))
    _show(stored, None, is_json=as_json, text=f"Schedule {name} comes next at {_next_time(stored)}.")


async def _add(db: "Database", config: "Config", schedule: "Schedule") -> "Schedule":
    from holdfast.api.server.engines import Engines
    from holdfast.fleet.schedules import add_schedule, check_runs, check_schedule

    check_schedule(config, schedule)
    if schedule.kind == "workflow":
        template = await check_runs(config, Engines(db, config), schedule)
        if template is not None and template.requires_text and not schedule.options.get("requirements_md", "").strip():
            raise refuse_missing()
    return await add_schedule(db, config, schedule)


def _to_row(repository: str) -> str:
    from holdfast.workspace.transfer.remotes import to_folder

    folder = to_folder(repository)
    return repository if folder is None else str(folder.expanduser().resolve())


def _read_arguments(text: str | None) -> dict[str, Any] | None:
    import json

    try:
        found = json.loads(text) if text else {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise typer.BadParameter("It should be a JSON object.", param_hint="--arguments")
    return found


def list_schedules(as_json: JSON = False) -> None:
    """List schedules, and when each comes next.

    Example: holdfast schedule list
    """
    from holdfast.cli.terminal.output import print_json, print_text, table
    from holdfast.fleet.schedules import explain_skips
    from holdfast.persistence.schedule_table import list_schedules as read

    async def read_all(db: "Database") -> list[tuple["Schedule", str | None]]:
        return [(each, await explain_skips(db, each)) for each in await read(db)]

    found = with_database(lambda db, _config: read_all(db))
    if as_json:
        print_json([_to_json(schedule, skips) for schedule, skips in found])
    elif not found:
        print_text("There are no schedules. Add one: holdfast schedule add NAME WORKFLOW --cron LINE")
    else:
        rows = [
            [each.name, each.target, each.cron, each.zone, _next_time(each), each.problem or skips or ""]
            for each, skips in found
        ]
        print_text(table(rows, headings=["NAME", "STARTS", "CRON", "ZONE", "NEXT", "NOTE"]))


def _next_time(schedule: "Schedule") -> str:
    """Say when it comes next."""
    is_none = schedule.is_paused or schedule.next_at is None
    return "paused" if is_none else _by_its_clock(schedule, str(schedule.next_at))


def _by_its_clock(schedule: "Schedule", moment: str) -> str:
    """Write a time by the clock of the schedule's zone, in which its line is written."""
    from datetime import datetime
    from zoneinfo import ZoneInfo

    return f"{datetime.fromisoformat(moment).astimezone(ZoneInfo(schedule.zone)):%Y-%m-%d %H:%M} {schedule.zone}"


def show(name: NAME, as_json: JSON = False) -> None:
    """Show one schedule: what it starts, when, and what became of the last time.

    Example: holdfast schedule show nightly
    """
    from holdfast.fleet.schedules import get_schedule

    found, skips = with_database(lambda db, _config: _explain(db, get_schedule(db, name)))
    lines = [
        f"{found.name}: {found.kind} {found.target}, {found.cron} ({found.zone})",
        f"  missed: {found.missed} · overlap: {found.overlap} · by {found.created_by}",
        *([f"  on {found.repo_path}"] if found.repo_path else []),
        f"  next: {_next_time(found)}",
        *([f"  last run: {found.last_run_id}"] if found.last_run_id else []),
        *([f"  skipped: {skips}"] if skips else []),
        *([f"  problem: {found.problem}"] if found.problem else []),
        *([f"  last tried: {_last_try(found)}"] if found.problem and found.problem_at else []),
    ]
    _show(found, skips, is_json=as_json, text="\n".join(lines))


async def _explain(db: "Database", reading: "Awaitable[Schedule]") -> "tuple[Schedule, str | None]":
    from holdfast.fleet.schedules import explain_skips

    schedule = await reading
    return schedule, await explain_skips(db, schedule)


def _last_try(schedule: "Schedule") -> str:
    outcome = "tried again every half minute" if schedule.is_tried_again else "that time was given up"
    return f"{_by_its_clock(schedule, str(schedule.problem_at))}, {outcome}"


def pause(
    name: NAME,
    off: Annotated[bool, typer.Option("--off", help="Let it go on, with the next time from now.")] = False,
    as_json: JSON = False,
) -> None:
    """Pause a schedule, or with --off let it go on.

    Example: holdfast schedule pause nightly
    """
    from holdfast.fleet.schedules import hold_schedule

    refuse_inside_agent_command("holdfast schedule pause")
    found, skips = with_database(lambda db, _config: _explain(db, hold_schedule(db, name, is_paused=not off)))
    text = f"Schedule {name} comes next at {_next_time(found)}." if off else f"Schedule {name} is paused."
    _show(found, skips, is_json=as_json, text=text)


def remove(name: NAME, as_json: JSON = False) -> None:
    """Remove a schedule. Its runs stay.

    Example: holdfast schedule remove nightly
    """
    from holdfast.cli.terminal.output import print_json, print_text
    from holdfast.fleet.schedules import remove_schedule

    refuse_inside_agent_command("holdfast schedule remove")
    with_database(lambda db, _config: remove_schedule(db, name))
    if as_json:
        print_json({"name": name, "state": "removed"})
    else:
        print_text(f"Schedule {name} is removed.")


def run_now(name: NAME, as_json: JSON = False) -> None:
    """Start a run of a schedule now, beside its times. holdfast serve drives it, or a worker.

    Example: holdfast schedule run nightly
    """
    from holdfast.cli.terminal.output import print_json, print_text

    refuse_inside_agent_command("holdfast schedule run")
    run_id = with_database(lambda db, config: _start(db, config, name))
    if as_json:
        print_json({"run_id": run_id, "state": "pending"})
    else:
        print_text(f"Run {run_id} waits for holdfast serve, or a worker.")


async def _start(db: "Database", config: "Config", name: str) -> str:
    from holdfast.api.server.engines import Engines
    from holdfast.fleet.schedules import start_now

    return await start_now(db, Engines(db, config), name, by=get_user())


def _show(schedule: "Schedule", skips: str | None, *, is_json: bool, text: str) -> None:
    from holdfast.cli.terminal.output import print_json, print_text

    if is_json:
        print_json(_to_json(schedule, skips))
    else:
        print_text(text)


def _to_json(schedule: "Schedule", skips: str | None) -> dict[str, Any]:
    return {**vars(schedule), "is_tried_again": schedule.is_tried_again, "skip_reason": skips}
