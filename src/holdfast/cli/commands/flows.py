"""The commands about flows: check, before a deploy; prune, what was over long ago."""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.terminal.arguments import JSON, STORE
from holdfast.cli.terminal.cleanup import DRY_RUN
from holdfast.cli.terminal.output import print_json, print_text, say
from holdfast.cli.terminal.store import name_configured_store, rows_of_deletion
from holdfast.enums import RunStatus
from holdfast.quantities import parse_duration

if TYPE_CHECKING:
    from datetime import timedelta

    from holdfast.flows.replay_check import RunCheck

_STATES = tuple(status.value for status in RunStatus if status.is_terminal)
_MARKS = {"fits": "✓", "breaks": "✕", "unclear": "?"}


def check(
    flow: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FLOW", help="The flow's function: shop.orders:settle; MODULE alone for all its @flow."
        ),
    ],
    store: Annotated[
        str, typer.Option("--store", metavar="PATH|URL", help="Where its runs are: a SQLite file or a database URL.")
    ] = "holdfast.db",
    as_json: JSON = False,
) -> None:
    """Replay a flow's open runs against the code of now, and say which would break. Nothing is called or written.

    The module is one that Python imports, or a file that ends in .py.
    Exit code 1 if one would break, or if that cannot be told.
    Example: holdfast flows check shop.orders:settle --store orders.db
    """
    from holdfast.flows.replay_check import check_flow

    store = _existing(store)
    found = [one for function in _load(flow) for one in asyncio.run(check_flow(function, store=store))]
    if as_json:
        print_json([one.to_dict() for one in found])
    else:
        print_text(_to_text(flow, found))
    raise typer.Exit(0 if all(one.outcome == "fits" for one in found) else 1)


def _existing(store: str) -> str:
    """Return a store that is there: looking must not make one."""
    from pathlib import Path

    if "://" not in store and not Path(store).exists():
        raise typer.BadParameter(f"There is no store {store}.", param_hint="--store")
    return store


def _load(name: str) -> list[Any]:
    """Return the functions that are meant: one, or all that a module has registered."""
    from holdfast.errors import ConfigInvalid
    from holdfast.flows.service.flow_registry import import_flows, list_definitions

    module_name, _, path = name.partition(":")
    try:
        target: Any = sys.modules[import_flows(module_name)]
        if not path:
            functions = [one.function for one in list_definitions() if one.function.__module__ == target.__name__]
            if not functions:
                raise typer.BadParameter(f"{name} registers no flow; write MODULE:FLOW.", param_hint="MODULE:FLOW")
            return functions
        for part in path.split("."):
            target = getattr(target, part)
    except (ConfigInvalid, AttributeError) as error:
        cause = error.message if isinstance(error, ConfigInvalid) else f"{error}."
        raise typer.BadParameter(f"{name!r} cannot be loaded: {cause}", param_hint="MODULE:FLOW") from error
    if not callable(target):
        raise typer.BadParameter(f"{name!r} is no function.", param_hint="MODULE:FLOW")
    return [target]


def _to_text(flow: str, found: "list[RunCheck]") -> str:
    if not found:
        return f"There are no open runs of {flow}."
    lines = []
    has_several = len({one.flow for one in found}) > 1
    for one in found:
        of = f" of {one.flow}" if has_several else ""
        lines.append(f"{_MARKS[one.outcome]} {one.run_id}{of} ({one.status}) {one.outcome}")
        if one.message:
            lines.append(f"    {one.message}")
    broken = sum(one.outcome == "breaks" for one in found)
    unclear = sum(one.outcome == "unclear" for one in found)
    more = f", {unclear} cannot be judged" if unclear else ""
    lines.append(f"{len(found)} open run{'' if len(found) == 1 else 's'}, {broken} would break{more}.")
    if broken:
        lines.append("Put the change behind `if await ctx.changed(name)`: see docs/howto/version-a-flow.md.")
    return "\n".join(lines)


def prune(
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="TIME", help="Runs that ended so long ago: 12h, 30d.")
    ],
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state", metavar="STATE", help="Only these: completed, cancelled, failed; without it the first two."
        ),
    ] = None,
    dry_run: DRY_RUN = False,
    as_json: JSON = False,
    store: STORE = None,
) -> None:
    """Delete runs of flows that were over long ago, each with its journal.

    Failed runs can be retried, so they go only if you name them. A child stays as long as the run that began it can go
    on.

    Example: holdfast flows prune --older-than 30d --store shop.db
    """
    from datetime import timedelta

    states = tuple(state or (RunStatus.COMPLETED.value, RunStatus.CANCELLED.value))
    for name in states:
        if name not in _STATES:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(_STATES)}.", param_hint="--state")
    try:
        age = timedelta(seconds=parse_duration(older_than))
    except ValueError as error:
        raise typer.BadParameter(f"{older_than!r} should be {error}.", param_hint="--older-than") from error
    report = asyncio.run(_prune(age, states, is_dry_run=dry_run))
    if as_json:
        print_json(report)
        return
    for item in report["skipped"]:
        say(f"{item['run_id']} stays: {item['error']['message']}")
    count = len(report["deleted"])
    runs = "1 run" if count == 1 else f"{count} runs"
    print_text(f"{runs} would be deleted." if dry_run else f"{runs} deleted.")


async def _prune(age: "timedelta", states: tuple[str, ...], *, is_dry_run: bool) -> dict[str, Any]:
    from holdfast.flows.run_expiry import list_prunable, prune
    from holdfast.runtime.stores import open_journal

    async with open_journal(name_configured_store()) as journal:
        rows = await list_prunable(journal, older_than=age, states=states)
        if is_dry_run:
            return {"dry_run": True, "deleted": [row.run_id for row in rows], "skipped": []}
        deleted, staying = await prune(journal, rows, also=lambda run_id: rows_of_deletion(journal, run_id))
    skipped = [{"run_id": run_id, "error": error.to_dict()} for run_id, error in staying.items()]
    return {"dry_run": False, "deleted": deleted, "skipped": skipped}
