"""The commands about flows: check, before a deploy."""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.terminal.arguments import JSON
from holdfast.cli.terminal.output import print_json, print_text

if TYPE_CHECKING:
    from holdfast.flows.replay_check import RunCheck

_MARKS = {"fits": "✓", "breaks": "✕", "unclear": "?"}


def check(
    flow: Annotated[str, typer.Argument(metavar="MODULE:FLOW", help="The flow's function: shop.orders:settle")],
    store: Annotated[
        str, typer.Option("--store", metavar="PATH|URL", help="Where its runs are: a SQLite file or a database URL.")
    ] = "holdfast.db",
    as_json: JSON = False,
) -> None:
    """Replay a flow's open runs against the code of now, and say which would break. Nothing is called or written.

    Exit code 1 if one would break, or if that cannot be told.
    Example: holdfast flows check shop.orders:settle --store orders.db
    """
    from holdfast.flows.replay_check import check_flow

    found = asyncio.run(check_flow(_load(flow), store=_existing(store)))
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


def _load(name: str) -> Any:
    import importlib

    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise typer.BadParameter(f"{name!r} names no function; write MODULE:FLOW.", param_hint="MODULE:FLOW")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as python -m does, for a module of the user's own
    try:
        target: Any = importlib.import_module(module_name)
        for part in path.split("."):
            target = getattr(target, part)
    except (ImportError, AttributeError) as error:
        raise typer.BadParameter(f"{name!r} cannot be loaded: {error}.", param_hint="MODULE:FLOW") from error
    if not callable(target):
        raise typer.BadParameter(f"{name!r} is no function.", param_hint="MODULE:FLOW")
    return target


def _to_text(flow: str, found: "list[RunCheck]") -> str:
    if not found:
        return f"There are no open runs of {flow}."
    lines = []
    for one in found:
        lines.append(f"{_MARKS[one.outcome]} {one.run_id} ({one.status}) {one.outcome}")
        if one.message:
            lines.append(f"    {one.message}")
    broken = sum(one.outcome == "breaks" for one in found)
    lines.append(f"{len(found)} open runs, {broken} would break.")
    if broken:
        lines.append("Put the change behind `if await ctx.changed(name)`: see docs/howto/version-a-flow.md.")
    return "\n".join(lines)
