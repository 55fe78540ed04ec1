"""The command personas show."""

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.terminal.arguments import JSON, REPO
from holdfast.cli.terminal.catalog import get_persona
from holdfast.cli.terminal.completion import complete_personas
from holdfast.cli.terminal.output import print_json, print_text, table


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
    print_text(table([[name, str(value)[:200]] for name, value in facts.items() if value not in (None, "", [], {})]))
