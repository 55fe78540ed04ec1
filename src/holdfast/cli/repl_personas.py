"""Who a person talks with: the personas that could answer here, and which of them is taken if none is named."""

from collections.abc import Sequence
from pathlib import Path

from holdfast.catalog import CatalogEntry, check_trust
from holdfast.catalog.lookup import Source
from holdfast.cli.lazy import did_you_mean
from holdfast.config import load_config
from holdfast.consent import open_consents
from holdfast.enums import Backend, Capability
from holdfast.errors import ConsentRequired, PersonaIneligible, PersonaNotFound
from holdfast.persona import AgentPersona
from holdfast.readiness import is_ready, list_needs

Entries = Sequence[CatalogEntry[AgentPersona]]


def choose_persona(entries: Entries, repo: Path, *, wanted: str | None, is_simulated: bool) -> AgentPersona:
    """The persona to talk with; raises as `get_persona` does.

    Without a wish: one that can write code before one that cannot, the user's own before the shipped ones, never one of
    the repository's that nobody has agreed to, and a simulated one only if it was asked for or there is no other.
    """
    if wanted is not None:
        return get_persona(entries, repo, wanted)
    simulated = [entry for entry in entries if entry.definition.backend is Backend.SIMULATED]
    if not is_simulated:
        real = [entry for entry in entries if entry.definition.backend is not Backend.SIMULATED]
        for entry in sorted(real, key=_preference):
            if is_ready(entry.definition) and _is_trusted(entry, repo):
                return entry.definition
    if not simulated:
        raise PersonaIneligible("There is no persona to talk with.", hint="See holdfast personas list, and set a key.")
    return max(simulated, key=lambda entry: (len(entry.definition.capabilities), entry.definition.name)).definition


def get_persona(entries: Entries, repo: Path, name: str) -> AgentPersona:
    """The persona of that name.

    Raises `PersonaNotFound`, `PersonaIneligible` if it could not answer, and `ConsentRequired` for one of the
    repository's own that nobody has agreed to.
    """
    found = {entry.definition.name: entry for entry in entries}
    if name not in found:
        hint = did_you_mean(name, list(found)).strip() or "See which there are: /personas"
        raise PersonaNotFound(f"There is no persona {name!r}.", hint=hint)
    persona = found[name].definition
    check_trust(repo, [found[name]], open_consents(load_config()))
    missing = [need for need in list_needs(persona) if not need.is_met]
    if missing:
        raise PersonaIneligible(f"Persona {name} cannot answer here: {missing[0].told}.", hint=missing[0].remedy)
    return persona


def _is_trusted(entry: CatalogEntry[AgentPersona], repo: Path) -> bool:
    try:
        check_trust(repo, [entry], open_consents(load_config()))
    except ConsentRequired:
        return False
    return True


def _preference(entry: CatalogEntry[AgentPersona]) -> tuple[bool, bool, bool, str]:
    persona = entry.definition
    return (
        persona.backend is Backend.COMMAND,  # it answers in one piece, and by its own rules
        Capability.CODE_WRITE not in persona.capabilities,
        entry.source is Source.PACKAGE,
        persona.name,
    )
