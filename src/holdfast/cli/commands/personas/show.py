"""The command personas show."""

from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli.terminal.arguments import JSON, REPO
from holdfast.cli.terminal.catalog import get_persona
from holdfast.cli.terminal.completion import complete_personas
from holdfast.cli.terminal.output import plain, print_json, print_text


def show_persona(
    persona: Annotated[str, typer.Argument(metavar="PERSONA", autocompletion=complete_personas)],
    repo: REPO = Path(),
    as_json: JSON = False,
) -> None:
    """Show one persona in full.

    Example: holdfast personas show simulated-developer
    """
    entry = get_persona(persona, repo)
    facts = {**entry.definition.model_dump(by_alias=True), "source": entry.source.value, "file": str(entry.file)}
    if as_json:
        print_json(facts)
        return
    from holdfast.presentation.values import describe_values

    for line in describe_values(_without_unset(facts)):
        print_text(plain(line))


def _without_unset(facts: dict[str, Any]) -> dict[str, Any]:
    """Leave out what the persona does not say, at every depth."""
    inner = {name: _without_unset(value) if isinstance(value, dict) else value for name, value in facts.items()}
    return {name: value for name, value in inner.items() if value not in (None, "", [], (), {})}
