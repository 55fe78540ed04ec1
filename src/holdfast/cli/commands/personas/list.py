"""The command personas list."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.terminal.arguments import JSON, REPO
from holdfast.cli.terminal.catalog import open_catalog
from holdfast.cli.terminal.output import Cell, print_json, print_text, table

if TYPE_CHECKING:
    from holdfast.binding import Missing
    from holdfast.catalog import CatalogEntry
    from holdfast.persona import AgentPersona


def list_personas(repo: REPO = Path(), as_json: JSON = False) -> None:
    """List personas: who is ready and what the others need, their models, where each comes from.

    Example: holdfast personas list
    """
    listed = read_personas(repo)
    if as_json:
        print_json([_persona_facts(entry, missing) for entry, missing in listed])
        return
    rows: list[list[str | Cell]] = [
        [
            Cell(entry.definition.name, "bold"),
            describe_readiness(entry.definition, missing),
            entry.definition.backend.value,
            entry.definition.model or "",
            entry.source.value,
        ]
        for entry, missing in listed
    ]
    print_text(table(rows, headings=["NAME", "STATE", "BACKEND", "MODEL", "FROM"], elastic=1, stacked=1))


def read_personas(repo: Path) -> "list[tuple[CatalogEntry[AgentPersona], list[Missing]]]":
    """Return each persona with what it lacks here: who is ready first, who is for rehearsals only last."""
    from holdfast.config import load_config
    from holdfast.consent import open_consents
    from holdfast.enums import Backend
    from holdfast.readiness import list_missing, open_readiness

    config = load_config()
    entries, consents = open_catalog(repo).list_personas(), open_consents(config)
    readiness = open_readiness(entries, config, repo=repo, consents=consents)
    readiness.ask_servers(entry.definition for entry in entries)
    listed = [(entry, list_missing(entry.definition, readiness, consents)) for entry in entries]
    return sorted(listed, key=lambda pair: (pair[0].definition.backend is Backend.SIMULATED, bool(pair[1])))


def describe_readiness(persona: "AgentPersona", missing: "Sequence[Missing]") -> Cell:
    if missing:
        return Cell(f"needs {' and '.join(one.thing for one in missing)}", "paused")
    is_simulated = persona.backend.value == "simulated"
    return Cell("with --simulate", "dim") if is_simulated else Cell("ready", "completed")


def _persona_facts(entry: "CatalogEntry[AgentPersona]", missing: "Sequence[Missing]") -> dict[str, object]:
    return {
        **entry.definition.model_dump(by_alias=True),
        "source": entry.source.value,
        "is_ready": not missing,
        "state": describe_readiness(entry.definition, missing).text,
        "missing": [one._asdict() for one in missing],
    }
