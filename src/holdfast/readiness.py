"""What a persona needs of this machine before it can work: a key, a program, a model server that answers."""

import os
import shutil
import socket
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from holdfast.binding import BackendAvailability
from holdfast.enums import Backend
from holdfast.keys import find_key
from holdfast.persona import AgentPersona

SERVERS = {
    Backend.OPENROUTER: "https://openrouter.ai",
    Backend.OPENAI: "https://api.openai.com",
    Backend.ANTHROPIC: "https://api.anthropic.com",
    Backend.OLLAMA: "http://localhost:11434",
}
_REACH_S = 2.0


class Need(NamedTuple):
    """One thing a persona needs: whether it is there, that in words, and what to do if it is not."""

    is_met: bool
    told: str
    remedy: str


def list_needs(persona: AgentPersona, environ: Mapping[str, str] = os.environ) -> list[Need]:
    """Everything a persona needs here; a simulated one needs nothing."""
    return [] if persona.backend is Backend.SIMULATED else list(_look(persona, environ))


def _look(persona: AgentPersona, environ: Mapping[str, str]) -> Iterator[Need]:
    if variable := persona.key_variable:
        is_set = bool(find_key(variable, environ))
        yield Need(is_set, f"{variable} is {'set' if is_set else 'not set'}", f"Set {variable}.")
    if persona.argv:
        program = persona.argv[0]
        is_there = shutil.which(program) is not None
        yield Need(is_there, f"{program} is {'there' if is_there else 'not on the path'}", f"Install {program}.")
    elif not variable:
        address = persona.base_url or SERVERS.get(persona.backend, "")
        answers = is_reachable(address)
        yield Need(
            answers, f"{address} {'answers' if answers else 'does not answer'}", f"Start the model server at {address}."
        )


def is_ready(persona: AgentPersona, environ: Mapping[str, str] = os.environ) -> bool:
    return all(need.is_met for need in list_needs(persona, environ))


def find_backends(personas: Iterable[AgentPersona], environ: Mapping[str, str] = os.environ) -> set[Backend]:
    """The backends that a persona could use here and now; `simulated` is not among them."""
    found: set[Backend] = set()
    looked_at: set[tuple[object, ...]] = set()
    for persona in personas:
        same = (persona.backend, persona.key_variable, persona.argv and persona.argv[0], persona.base_url)
        if persona.backend in found or persona.backend is Backend.SIMULATED or same in looked_at:
            continue
        looked_at.add(same)
        if is_ready(persona, environ):
            found.add(persona.backend)
    return found


def find_available(personas: Iterable[AgentPersona], *, is_simulated: bool) -> BackendAvailability:
    """What a run may be bound to: the simulated backend for a rehearsal, else whatever works here."""
    found = {Backend.SIMULATED} if is_simulated else find_backends(personas)
    return BackendAvailability(available_backends=frozenset(found))


def is_reachable(address: str) -> bool:
    """Whether something listens there."""
    parts = urlsplit(address)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), timeout=_REACH_S).close()
    except OSError:
        return False
    return True
