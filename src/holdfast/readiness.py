"""What a persona needs of this machine before it can work: a key, a program, a model server that answers.

`Readiness` is the one answer to "is this persona ready", for binding, previews, listings and checks alike.
"""

import copy
import importlib.util
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

from holdfast.binding import BackendAvailability, Missing
from holdfast.catalog import CatalogEntry, load_model_table, trust_of
from holdfast.config import Config
from holdfast.consent import PersonaConsentStore
from holdfast.enums import Backend
from holdfast.keys import find_key
from holdfast.model_servers import TIMEOUT_S, ServerAnswer, ask_server
from holdfast.persona import AgentPersona

SERVERS = {
    Backend.OPENROUTER: "https://openrouter.ai",
    Backend.OPENAI: "https://api.openai.com",
    Backend.ANTHROPIC: "https://api.anthropic.com",
    Backend.OLLAMA: "http://127.0.0.1:11434",
}
PLACEHOLDER_MODEL = "your-model"
"""The model of a shipped persona that is a form to fill in; no server is asked for it."""
_CLIENTS = {Backend.ANTHROPIC: "langchain_anthropic", Backend.OLLAMA: "langchain_ollama"}
_MAX_SERVERS = 16  # at once, each for two seconds: more model servers than anybody has, and little enough to wait for
_FRESH_S = 60.0  # one command asks each server once; a conversation that lasts hours notices a server that was started


K = TypeVar("K")
V = TypeVar("V")


class Need(NamedTuple):
    """One thing a persona needs: whether it is there, that in words, the thing itself, and what to do without it."""

    is_met: bool
    finding: str
    thing: str
    remedy: str


class Readiness:
    """Looks once, remembers for a minute. A persona that `is_trusted` refuses is not ready, and no server is asked."""

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        *,
        config_dir: Path | None = None,
        is_trusted: Callable[[AgentPersona], bool] | None = None,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._config_dir = config_dir
        self._is_trusted = is_trusted or (lambda _persona: True)
        self._assumes_trust = False
        self._is_blind = False
        self._is_for_workers = False
        self._is_elsewhere = False
        self._answers: dict[tuple[Backend, str], tuple[float, ServerAnswer]] = {}
        self._keys: dict[str, tuple[float, bool]] = {}

    def before_trust(self, *, is_blind: bool = False) -> "Readiness":
        """Return the same with the same answers, for the question whom a person has to agree to.

        Whoever is not trusted counts as having a server that answers; it is not asked. With `is_blind`, for others than
        the machine's own user, they count as having everything: who could be chosen would tell which keys are there.
        """
        same = copy.copy(self)
        same._assumes_trust, same._is_blind = True, is_blind
        return same

    def for_workers(self) -> "Readiness":
        """Return the same for a run that workers drive: whoever is named for a role needs nothing of this machine."""
        same = copy.copy(self)
        same._is_for_workers = True
        return same

    def for_named(self) -> "Readiness":
        """Return what answers for a persona that somebody named."""
        if not self._is_for_workers:
            return self
        same = copy.copy(self)
        same._is_elsewhere = True
        return same

    def list_needs(self, persona: AgentPersona) -> list[Need]:
        """Return everything a persona needs here; a simulated one needs nothing."""
        return list(self._look(persona))

    def find_missing(self, persona: AgentPersona) -> Missing | None:
        """Return the first thing that keeps a persona from working here and now; only then is a server asked."""
        unmet = next((need for need in self._look(persona) if not need.is_met), None)
        return None if unmet is None else Missing(unmet.finding, unmet.thing, unmet.remedy)

    def find_missing_here(self, persona: AgentPersona) -> str | None:
        """Return the first key, program or package that a persona lacks on this machine; no server is asked."""
        return next((need.thing for need in self._look_here(persona) if not need.is_met), None)

    def is_ready(self, persona: AgentPersona) -> bool:
        return self.find_missing(persona) is None

    def is_known(self, persona: AgentPersona) -> bool:
        """Return true if `find_missing` answers without asking a server."""
        place = self._find_server(persona)
        if place is None or _find_fresh(self._answers, place) is not None:
            return True
        return not self._is_trusted(persona) or any(not need.is_met for need in self._look_here(persona))

    def ask_servers(self, personas: Iterable[AgentPersona]) -> None:
        """Ask the servers of all these personas at once, so that silent ones cost their time once.

        Only so many are asked; the others count as having no server that answers, for as long as an answer counts.
        """
        unknown = [persona for persona in personas if not self.is_known(persona)]
        places = list(dict.fromkeys(place for one in unknown if (place := self._find_server(one)) is not None))
        for place in places[_MAX_SERVERS:]:
            self._answers[place] = (time.monotonic(), ServerAnswer(None, "was not asked, there are too many servers"))
        with ThreadPoolExecutor(max_workers=_MAX_SERVERS) as pool:
            for _ in pool.map(lambda place: self._ask(*place), places[:_MAX_SERVERS]):
                pass

    def _look(self, persona: AgentPersona) -> Iterator[Need]:
        if persona.backend is Backend.SIMULATED:
            return
        is_trusted = self._is_trusted(persona)
        if not is_trusted and not self._assumes_trust:
            yield Need(False, "nobody has agreed to it yet", "consent", "Read it, then agree: holdfast trust --repo .")
            return
        if not is_trusted and self._is_blind:
            return
        has_all = True
        for need in self._look_here(persona):
            has_all = has_all and need.is_met
            yield need
        place = self._find_server(persona)
        if place is not None and has_all and is_trusted:
            yield from self._look_there(persona, *place)

    def _look_here(self, persona: AgentPersona) -> Iterator[Need]:
        """List the needs that are known without asking a server."""
        if persona.model == PLACEHOLDER_MODEL:
            yield Need(False, "no model is named yet", "a model of your own", _describe_form(persona))
        if self._is_elsewhere:
            return
        if client := _CLIENTS.get(persona.backend):
            extra = f"holdfast[{persona.backend}]"
            if importlib.util.find_spec(client) is None:
                yield Need(False, f"{extra} is not installed", extra, f"Install it: pip install '{extra}'")
        if variable := persona.key_variable:
            is_set = self._has_key(variable)
            yield Need(is_set, f"{variable} is {'set' if is_set else 'not set'}", variable, f"Set {variable}.")
        if persona.argv:
            program = persona.argv[0]
            is_there = shutil.which(program) is not None
            finding = f"{program} is {'there' if is_there else 'not on the path'}"
            yield Need(is_there, finding, f"the program {program}", f"Install {program}.")

    def _look_there(self, persona: AgentPersona, backend: Backend, address: str) -> Iterator[Need]:
        answer = self._ask(backend, address)
        server = f"a model server at {address}"
        if not answer.is_model_server:
            yield Need(False, f"{address} {answer.finding}", server, _describe_remedy(persona, address, answer))
            return
        yield Need(True, f"{address} answers", server, "")
        if backend is Backend.OLLAMA:
            yield from self._look_for_model(persona, answer)

    def _look_for_model(self, persona: AgentPersona, answer: ServerAnswer) -> Iterator[Need]:
        """Look for a model that Ollama has: what was pulled and nothing else; a fallback that is there will do."""
        table = load_model_table(self._config_dir)
        names = [table.resolve_id(persona.backend, name) for name in (persona.model, *persona.fallback_models)]
        if {_with_tag(name) for name in names}.isdisjoint(map(_with_tag, answer.models or ())):
            model = names[0]
            yield Need(False, f"ollama has no {model}", f"the model {model}", f"Fetch it: ollama pull {model}")

    def _find_server(self, persona: AgentPersona) -> tuple[Backend, str] | None:
        """Find the server to ask; none where a key or a program is what counts."""
        if self._is_elsewhere or persona.backend is Backend.SIMULATED or persona.key_variable or persona.argv:
            return None
        return persona.backend, persona.base_url or SERVERS[persona.backend]

    def _has_key(self, variable: str) -> bool:
        known = _find_fresh(self._keys, variable)
        if known is None:  # a keyring may take its time
            known = bool(find_key(variable, self._environ))
            self._keys[variable] = (time.monotonic(), known)
        return known

    def _ask(self, backend: Backend, address: str) -> ServerAnswer:
        place = (backend, address)
        known = _find_fresh(self._answers, place)
        if known is None:
            known = ask_server(backend, address)
            self._answers[place] = (time.monotonic(), known)
        return known


def open_readiness(
    entries: Iterable[CatalogEntry[AgentPersona]],
    config: Config,
    *,
    repo: Path | None,
    consents: PersonaConsentStore,
    is_elsewhere: bool = False,
) -> Readiness:
    """Return what answers for these personas; a repository's own that nobody has agreed to make no connection.

    For a run that is driven elsewhere, which on SQLite is the same machine, it is the one for workers.
    """
    is_trusted = trust_of(repo, entries, consents)
    readiness = Readiness(config_dir=config.config_dir, is_trusted=is_trusted)
    return readiness.for_workers() if is_elsewhere and config.database_path is None else readiness


def list_missing(persona: AgentPersona, readiness: Readiness, consents: PersonaConsentStore) -> list[Missing]:
    """Return what a listing says is missing: what keeps it from working, and a consent that it asks for."""
    missing = [Missing(*need[1:]) for need in readiness.list_needs(persona) if not need.is_met]
    if persona.requires_consent and not consents.has_consent(persona):
        remedy = f"Read it, then agree: holdfast trust {persona.name}"
        missing.append(Missing("nobody has agreed to it yet", "consent", remedy))
    return missing


def find_available(*, is_simulated: bool, readiness: Readiness | None = None) -> BackendAvailability:
    """Return what a run may be bound to: the simulated backend for a rehearsal, else whoever is ready here."""
    if is_simulated:
        return BackendAvailability(available_backends=frozenset({Backend.SIMULATED}))
    real = frozenset(Backend) - {Backend.SIMULATED}
    return BackendAvailability(available_backends=real, readiness=readiness or Readiness())


def is_reachable(address: str) -> bool:
    """Return true if something listens there."""
    parts = urlsplit(address)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), timeout=TIMEOUT_S).close()
    except OSError:
        return False
    return True


def _find_fresh(known: "Mapping[K, tuple[float, V]]", key: K) -> V | None:
    found = known.get(key)
    return found[1] if found is not None and time.monotonic() - found[0] < _FRESH_S else None


def _describe_form(persona: AgentPersona) -> str:
    copy_it = f"Copy {persona.name} under a name of your own and set base_url and model"
    return f"{copy_it}; see docs/howto/use-your-own-model.md."


def _describe_remedy(persona: AgentPersona, address: str, answer: ServerAnswer) -> str:
    if "key" in answer.finding:
        return f"Name the variable that holds its key in api_key_env of {persona.name}."
    if "does not answer" in answer.finding:
        return f"Start the model server at {address}."
    return f"Correct base_url of {persona.name}; a model server lists its models at {address.rstrip('/')}/models."


def _with_tag(name: str) -> str:
    return name if ":" in name else f"{name}:latest"


@dataclass(frozen=True)
class AgreedDefinitions:
    """What was read of a repository at one moment, and who of it is ready.

    A run is bound from these very definitions: files that are read a moment before or after may say something else.
    """

    entries: Sequence[CatalogEntry[AgentPersona]]
    readiness: Readiness
