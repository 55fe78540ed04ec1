"""What a repository's own definitions would make this machine do, so that a person can agree to exactly that once.

A repository may be a stranger's. Its workflows can name commands, its personas programs, servers that are sent a key,
and commands that nobody is asked about. Whatever a user has in a folder of their own they have agreed to by that.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.binding import BackendAvailability, bind_personas
from holdfast.catalog.lookup import Catalog, CatalogEntry, Source
from holdfast.consent import AnyConsent, PersonaConsentStore
from holdfast.definitions.base import content_hash
from holdfast.errors import ConsentRequired
from holdfast.persona import DEFAULT_KEY_VARIABLES, AgentPersona, Verdict
from holdfast.workflow import WorkflowTemplate


@dataclass(frozen=True, slots=True)
class Demands:
    """What one definition of a repository asks for. A consent counts for this repository and exactly this content."""

    name: str
    content_hash: str
    lines: tuple[str, ...]


def find_demands(repo: Path | None, entries: Iterable[CatalogEntry[Any]]) -> list[Demands]:
    """Find what each of the repository's own entries asks for; entries that ask for nothing are left out.

    Without a folder, as with a repository that is named by a URL, no entry is its own.
    """
    if repo is None:
        return []
    folder = repo.resolve()
    found = []
    for entry in entries:
        if _is_of(folder, entry) and (lines := tuple(_list_demands(entry.definition))):
            identity = {"repository": str(folder), "definition": entry.definition.content_hash}
            found.append(Demands(f"{entry.definition.name} of {folder}", content_hash(identity), lines))
    return found


def check_trust(repo: Path | None, entries: Iterable[CatalogEntry[Any]], consents: PersonaConsentStore) -> None:
    """Raise `ConsentRequired` unless a person has agreed to what the repository's own definitions ask for."""
    missing = [demands for demands in find_demands(repo, entries) if not consents.has_consent(demands)]
    lines = [line for demands in missing for line in demands.lines]
    if lines:
        raise ConsentRequired(
            f"{repo} brings definitions of its own that nobody here has agreed to: {'; '.join(lines)}.",
            hint=f"Read them, then agree once: holdfast trust --repo {repo}",
            repository=str(repo),
            demands=lines,
        )


def trust_of(
    repo: Path | None, entries: Iterable[CatalogEntry[AgentPersona]], consents: PersonaConsentStore
) -> Callable[[AgentPersona], bool]:
    """Return a function that says whether a person has agreed to what a persona of these asks for, as of the call."""
    folder = None if repo is None else repo.resolve()
    found = {entry.definition.content_hash: entry for entry in entries if folder is not None and _is_of(folder, entry)}

    def is_trusted(persona: AgentPersona) -> bool:
        entry = found.get(persona.content_hash)
        return entry is None or all(map(consents.has_consent, find_demands(repo, [entry])))

    return is_trusted


def list_used(
    catalog: Catalog,
    workflow: CatalogEntry[WorkflowTemplate],
    availability: BackendAvailability,
    overrides: Mapping[str, str] | None = None,
    *,
    entries: Sequence[CatalogEntry[AgentPersona]] | None = None,
) -> list[CatalogEntry[Any]]:
    """List the definitions that a run would be made from: the workflow, and the personas that would fill its roles.

    `entries` are the personas, if they were read before: then nothing is read again. Raises `PersonaIneligible` as
    binding does.
    """
    entries = catalog.list_personas() if entries is None else entries
    pool = [entry.definition for entry in entries]
    bindings = bind_personas(workflow.definition, pool, availability, overrides=overrides, consent_store=AnyConsent())
    bound = {binding.persona_hash for binding in bindings.values()}
    return [workflow, *(entry for entry in entries if entry.definition.content_hash in bound)]


def _is_of(folder: Path, entry: CatalogEntry[Any]) -> bool:
    return entry.source is Source.REPOSITORY or (
        entry.source is Source.FILE and entry.file.resolve().is_relative_to(folder)
    )


def _list_demands(definition: WorkflowTemplate | AgentPersona) -> Iterator[str]:
    if isinstance(definition, WorkflowTemplate):
        commands = definition.commands
        for argv in dict.fromkeys(commands):
            yield f"workflow {definition.name} runs {' '.join(argv)}"
        if commands:
            yield from _list_freedoms(definition)
        if definition.copy_files:
            yield f"workflow {definition.name} copies {', '.join(definition.copy_files)} from your checkout"
        return
    if definition.argv is not None:
        yield f"persona {definition.name} runs {' '.join(definition.argv)}"
        if definition.adapter is not None:
            yield f"persona {definition.name} gets the account and the keys of {definition.adapter}"
        if variables := [*filter(None, [definition.api_key_env]), *definition.env]:
            yield f"persona {definition.name} gets {', '.join(f'${name}' for name in variables)}"
    if definition.base_url is not None:
        key = f" with ${definition.key_variable}" if definition.key_variable else ""
        yield f"persona {definition.name} calls {definition.base_url}{key}"
    elif definition.argv is None and definition.api_key_env not in (
        None,
        DEFAULT_KEY_VARIABLES.get(definition.backend),
    ):
        yield f"persona {definition.name} uses ${definition.api_key_env} as its key"
    yield from _list_permissions(definition)


def _list_permissions(persona: AgentPersona) -> Iterator[str]:
    """List what a persona's agent and its commands may do beyond what every agent may do unasked."""
    name, permissions = persona.name, persona.permissions
    for pattern in permissions.commands.allow:
        yield f"persona {name} may run {pattern} without asking"
    if permissions.network is Verdict.ALLOW:
        yield f"persona {name} may use the network without asking"
    if places := (*permissions.readable, *permissions.read.allow):
        yield f"persona {name} may read {', '.join(places)}"
    if permissions.write.allow:
        yield f"persona {name} may write {', '.join(permissions.write.allow)} without asking"
    if limits := permissions.limits.model_dump(exclude_none=True):
        yield f"persona {name} limits its commands to {', '.join(f'{key} {value}' for key, value in limits.items())}"
    if not persona.sandbox.is_on:
        yield f"persona {name} runs without a sandbox"
    if persona.sandbox.read:
        yield f"persona {name} may read {', '.join(persona.sandbox.read)}"
    if persona.sandbox.write:
        yield f"persona {name} may write {', '.join(persona.sandbox.write)}"


def _list_freedoms(workflow: WorkflowTemplate) -> Iterator[str]:
    """List what the commands of a workflow may do beyond what the sandbox lets every command do."""
    rules, name = workflow.sandbox, workflow.name
    if rules.switched_off:
        yield f"workflow {name} runs its {' and '.join(rules.switched_off)} without a sandbox"
    if rules.network not in (None, "deny"):
        hosts = "the whole network" if isinstance(rules.network, str) else ", ".join(rules.network or ())
        yield f"workflow {name} lets its commands reach {hosts}"
    if rules.readable or rules.secrets:
        yield f"workflow {name} lets its commands read {', '.join((*rules.readable, *rules.secrets))}"
