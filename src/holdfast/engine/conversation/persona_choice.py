"""Who a person talks with: the personas that could answer here, and which of them is taken if none is named."""

import difflib
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from holdfast.binding import check_consent
from holdfast.catalog import CatalogEntry, check_trust
from holdfast.catalog.lookup import Source
from holdfast.consent import PersonaConsentStore
from holdfast.enums import Backend, Capability
from holdfast.errors import ConsentRequired, PersonaIneligible, PersonaInvalid, PersonaNotFound
from holdfast.persona import AgentPersona
from holdfast.readiness import Readiness

Entries = Sequence[CatalogEntry[AgentPersona]]


def choose_persona(
    entries: Entries,
    repo: Path | None,
    consents: PersonaConsentStore,
    *,
    name: str | None,
    is_simulated: bool,
    readiness: Readiness | None = None,
) -> AgentPersona:
    """Return the persona to talk with; raises as `get_persona` does. `readiness` remembers which servers answered.

    Without a name: one that can write code before one that cannot, the user's own before the shipped ones, never one of
    the repository's that nobody has agreed to, and a simulated one only if it was asked for or there is no other.
    """
    if name is not None:
        return get_persona(entries, repo, consents, name, readiness=readiness)
    simulated = [entry for entry in entries if entry.definition.backend is Backend.SIMULATED]
    if not is_simulated:
        real = [entry for entry in entries if entry.definition.backend is not Backend.SIMULATED]
        readiness = readiness or Readiness()
        for entry in sorted(real, key=_preference):
            if _is_trusted(entry, repo, consents) and readiness.is_ready(entry.definition):
                return entry.definition
    if not simulated:
        raise PersonaIneligible("There is no persona to talk with.", hint="See holdfast personas list, and set a key.")
    return max(simulated, key=lambda entry: (len(entry.definition.capabilities), entry.definition.name)).definition


def get_persona(
    entries: Entries, repo: Path | None, consents: PersonaConsentStore, name: str, *, readiness: Readiness | None = None
) -> AgentPersona:
    """Return the persona of that name; no file is opened for it.

    Raises `PersonaNotFound`, `PersonaIneligible` if it could not answer, and `ConsentRequired` for one that needs a
    consent which nobody has given, or that is the repository's own.
    """
    found = {entry.definition.name: entry for entry in entries}
    if name not in found:
        close = difflib.get_close_matches(name, found, 1)
        hint = f"Did you mean {close[0]!r}?" if close else "List the personas to see which there are."
        raise PersonaNotFound(f"There is no persona {name!r}.", hint=hint)
    persona = found[name].definition
    check_trust(repo, [found[name]], consents)
    check_consent([persona], consents)
    missing = (readiness or Readiness()).find_missing(persona)
    if missing is not None:
        raise PersonaIneligible(f"Persona {name} cannot answer here: {missing.finding}.", hint=missing.remedy)
    return persona


def with_model(persona: AgentPersona, model: str) -> AgentPersona:
    """Return the same persona on this model, and on no other if it does not answer. Raises `PersonaInvalid`."""
    changed = persona.model_dump(by_alias=True) | {"model": model, "fallback_models": []}
    try:
        return AgentPersona.model_validate(changed)
    except ValidationError as error:
        message = f"Persona {persona.name} cannot have this model: {error.errors()[0]['msg']}."
        raise PersonaInvalid(message, hint="Name a model of its backend.", file="", problems=[]) from error


def _is_trusted(entry: CatalogEntry[AgentPersona], repo: Path | None, consents: PersonaConsentStore) -> bool:
    try:
        check_trust(repo, [entry], consents)
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
