"""The command that checks the machine. It changes nothing."""

from typing import Any

import typer

from holdfast.cli.terminal.arguments import JSON
from holdfast.cli.terminal.output import Cell, paint, print_json, print_text

_MARKS = {"good": ("✓", "completed"), "warning": ("!", "paused"), "bad": ("✕", "failed")}


def doctor(as_json: JSON = False) -> None:
    """Check this machine and name a remedy for what is missing. Exit code 1 if something stands in the way.

    Example: holdfast doctor
    """
    from holdfast.doctor import check_all

    checks = [check._asdict() for check in check_all()]
    is_well = all(check["state"] != "bad" for check in checks)
    if as_json:
        print_json({"ok": is_well, "checks": checks})
    else:
        _show(checks, is_well=is_well)
    raise typer.Exit(0 if is_well else 1)


def _show(checks: list[dict[str, Any]], *, is_well: bool) -> None:
    width = max(len(check["name"]) for check in checks)
    for check in checks:
        sign, tone = _MARKS[check["state"]]
        cell = Cell(f"{sign} {check['name'].ljust(width)}", tone)
        print_text(f"{paint(*cell)}  {check['found']}")
        if check["remedy"]:
            print_text(f"  {' ' * width}  {paint(check['remedy'], 'dim')}")
    models = [check["state"] for check in checks if check["name"].startswith("model")]
    if not is_well:
        print_text("\nWhat is marked with ✕ stands in the way.")
    elif models and "good" not in models:
        print_text("\nReady to rehearse (--simulate). For real work, set up one of the models above.")
    else:
        print_text("\nReady.")
