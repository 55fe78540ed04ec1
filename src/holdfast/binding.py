"""Binds a persona to each role of a workflow: always the same one for the same input, with the reasons in words.

The order of preference is fixed: the role's preferred backends, then the higher version, then name, then hash. Binding
trusts the availability it is given and looks at no keys; where that holds a `readiness`, only whoever is ready is
chosen, and servers are asked in the order of preference, until one is.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cmp_to_key
from typing import Any, NamedTuple, Protocol

from holdfast.consent import Consent, PersonaConsentStore
from holdfast.definitions.base import content_hash, version_order
from holdfast.enums import Backend
from holdfast.errors import ConsentRequired, PersonaIneligible
from holdfast.persona import AgentPersona
from holdfast.workflow import WorkflowRole, WorkflowTemplate

__all__ = [
    "BackendAvailability",
    "Binding",
    "Candidate",
    "Consent",
    "Missing",
    "PersonaConsentStore",
    "bind_personas",
    "explains_override",
    "find_unfillable",
    "rank_candidates",
]


class Missing(NamedTuple):
    """What keeps a persona from working: that in words, the thing it needs, and what to do."""

    finding: str
    thing: str
    remedy: str


class PersonaReadiness(Protocol):
    """Knows what personas need of this machine; whatever it answered once it answers again."""

    def find_missing(self, persona: AgentPersona, /) -> Missing | None: ...

    def is_known(self, persona: AgentPersona, /) -> bool:
        """Return true if `find_missing` takes no time, because no server is to be asked."""
        ...

    def for_named(self) -> "PersonaReadiness":
        """Return what answers for a persona that somebody named: another one where workers drive the run."""
        ...


@dataclass(frozen=True, slots=True)
class BackendAvailability:
    """The backends a run may use. A simulated persona is chosen only where `simulated` is among them."""

    available_backends: frozenset[Backend]
    readiness: PersonaReadiness | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "available_backends", frozenset(map(Backend, self.available_backends)))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A persona looked at for a role, and why it cannot take it; without reasons it can.

    `missing` is what it needs to be ready; one that is not `is_certain` can take it if its server answers.
    """

    persona: AgentPersona
    reasons: tuple[str, ...]
    missing: Missing | None = None
    is_certain: bool = True

    @property
    def is_eligible(self) -> bool:
        return not self.reasons


@dataclass(frozen=True, slots=True)
class Binding:
    """Who fills a role in a run. It is stored with the run and never made again, unless a person asks for another."""

    role_id: str
    persona: AgentPersona
    persona_hash: str
    backend: Backend
    binding_hash: str
    explanation: str


def bind_personas(
    template: WorkflowTemplate,
    personas: Iterable[AgentPersona],
    availability: BackendAvailability,
    *,
    overrides: Mapping[str, str] | None = None,
    consent_store: PersonaConsentStore | None = None,
    is_partial: bool = False,
) -> dict[str, Binding]:
    """Bind one persona to each role, in the template's order. `overrides` names personas by role id; a partial
    binding is of the roles they name and no others.

    Raises `PersonaIneligible` if nobody, or not the one asked for, can fill a role, and `ConsentRequired` if a chosen
    persona needs a consent that the store does not hold (without a store: that nobody could have given).
    """
    pool = list(personas)
    names = dict(overrides or {})
    for role_id in names:
        if role_id not in {role.id for role in template.roles}:
            known = ", ".join(role.id for role in template.roles)
            raise PersonaIneligible(f"Workflow {template.name} has no role {role_id}; its roles are {known}.")
    roles = [role for role in template.roles if role.id in names or not is_partial]
    bindings = {role.id: _bind(role, pool, availability, names.get(role.id)) for role in roles}
    check_consent((binding.persona for binding in bindings.values()), consent_store)
    return bindings


def rank_candidates(
    role: WorkflowRole,
    personas: Iterable[AgentPersona],
    availability: BackendAvailability,
    *,
    asks_servers: bool = True,
) -> list[Candidate]:
    """Return every persona once, the one that would be chosen first, the ones that cannot fill the role last.

    Unless it `asks_servers`, those whose server is yet to be asked count as ready.
    """
    # The same persona may come from the catalog and from the repository; its content says that it is the same.
    unique = {persona.content_hash: persona for persona in personas}
    candidates = [_consider(role, one, availability, asks_servers=asks_servers) for one in unique.values()]
    return sorted(candidates, key=lambda candidate: (not candidate.is_eligible, *_preference(role, candidate.persona)))


def find_unfillable(template: WorkflowTemplate, personas: Iterable[AgentPersona]) -> list[str]:
    """Describe the roles for which there is no persona at all, whichever backends are there."""
    known, anywhere = list(personas), BackendAvailability(available_backends=frozenset(Backend))
    return [
        f"Nobody could fill role {role.id}: no persona has {', '.join(role.required_capabilities)}."
        for role in template.roles
        if not any(candidate.is_eligible for candidate in rank_candidates(role, known, anywhere))
    ]


def _consider(
    role: WorkflowRole, persona: AgentPersona, availability: BackendAvailability, *, asks_servers: bool
) -> Candidate:
    reasons, readiness = _find_reasons(role, persona, availability), availability.readiness
    if reasons or readiness is None:
        return Candidate(persona, reasons)
    if not asks_servers and not readiness.is_known(persona):
        return Candidate(persona, (), is_certain=False)
    missing = readiness.find_missing(persona)
    return Candidate(persona, () if missing is None else (missing.finding,), missing)


def _find_reasons(role: WorkflowRole, persona: AgentPersona, availability: BackendAvailability) -> tuple[str, ...]:
    reasons = []
    lacking = [capability for capability in role.required_capabilities if capability not in persona.capabilities]
    if lacking:
        reasons.append(f"it lacks {', '.join(lacking)}")
    if persona.backend not in availability.available_backends:
        reasons.append(f"backend {persona.backend} is not available")
    return tuple(reasons)


def _preference(role: WorkflowRole, persona: AgentPersona) -> tuple[Any, ...]:
    return _backend_rank(role, persona), _HIGHER_FIRST(persona.version), persona.name, persona.content_hash


def _backend_rank(role: WorkflowRole, persona: AgentPersona) -> int:
    liked = role.preferred_backends
    return liked.index(persona.backend) if persona.backend in liked else len(liked)


def _compare_versions(left: int | str, right: int | str) -> int:
    first, second = version_order(left), version_order(right)
    return (first < second) - (first > second)


_MOST_NAMED = 3
_OVERRIDE_REASON = "chosen because it was asked for"
_HIGHER_FIRST = cmp_to_key(_compare_versions)


def _bind(
    role: WorkflowRole, pool: list[AgentPersona], availability: BackendAvailability, override: str | None
) -> Binding:
    readiness = availability.readiness
    is_for_workers = readiness is not None and readiness.for_named() is not readiness
    if override is not None and readiness is not None:
        availability = replace(availability, readiness=readiness.for_named())
    candidates = _rank_until_certain(role, pool, availability, override)
    chosen, others = candidates[0] if candidates else None, candidates[1:]
    if chosen is None or not chosen.is_eligible:
        raise _nobody(role, candidates, override, is_for_workers=is_for_workers)
    explanation = _explain(role, chosen.persona, others, is_override=override is not None)
    return _make_binding(role, chosen.persona, explanation)


def _rank_until_certain(
    role: WorkflowRole, pool: list[AgentPersona], availability: BackendAvailability, override: str | None
) -> list[Candidate]:
    """Ask the server of the first candidate until the first one is certain; nobody waits for servers behind it."""
    while True:
        candidates = rank_candidates(role, pool, availability, asks_servers=False)
        if override is not None:
            candidates = _named(role, candidates, override)
        if not candidates or candidates[0].is_certain or availability.readiness is None:
            return candidates
        # This asks the server and remembers what it said. Ready: the first candidate is chosen. Not ready: the next
        # ranking puts it behind, and another one is first. Each turn makes one more candidate certain, so this ends.
        if availability.readiness.find_missing(candidates[0].persona) is None:
            return candidates


def _named(role: WorkflowRole, candidates: list[Candidate], override: str) -> list[Candidate]:
    named = [candidate for candidate in candidates if candidate.persona.name == override]
    if named:
        return named
    names = ", ".join(candidate.persona.name for candidate in candidates if candidate.is_eligible) or "none"
    raise PersonaIneligible(
        f"Role {role.id} cannot be given to {override}: there is no persona of that name.",
        hint=f"Personas that can fill it: {names}.",
        role_id=role.id,
    )


def _nobody(
    role: WorkflowRole, candidates: list[Candidate], override: str | None, *, is_for_workers: bool
) -> PersonaIneligible:
    missing = _list_missing(candidates)
    facts: dict[str, Any] = {"role_id": role.id, "missing": missing}
    if override is not None:
        why = " and ".join(candidates[0].reasons)
        hint = missing[0]["remedy"] if missing else None
        return PersonaIneligible(f"Role {role.id} cannot be given to {override}: {why}.", hint=hint, **facts)
    if missing:
        return PersonaIneligible(
            f"Nobody is ready for role {role.id}: {describe_missing(missing)}.",
            hint=f"{missing[0]['remedy']} {f'{advise_names(role.id)} ' if is_for_workers else ''}"
            "Or rehearse with the simulated model. Who is ready: holdfast personas list",
            **facts,
        )
    why = _list_reasons(candidates, most_named=_MOST_NAMED) or "there are no personas"
    needed = ", ".join(role.required_capabilities) or "nothing"
    return PersonaIneligible(
        f"No persona can fill role {role.id}, which needs {needed}: {why}.",
        hint="Make a backend available (set its key), add a persona, or rehearse with the simulated backend.",
        **facts,
    )


def advise_names(role_id: str) -> str:
    """Say how to start a run for workers that have a key that this machine lacks."""
    return f"Or name a persona for workers that have its key: --persona {role_id}=NAME."


def _list_missing(candidates: Iterable[Candidate]) -> list[dict[str, str]]:
    return [
        {"persona": candidate.persona.name, **candidate.missing._asdict()}
        for candidate in candidates
        if candidate.missing is not None
    ]


def describe_missing(missing: Sequence[Mapping[str, str]]) -> str:
    """Name the first few things of which one would make somebody ready."""
    things = list(dict.fromkeys(entry["thing"] for entry in missing))
    *first, last = things if len(things) <= _MOST_NAMED else [*things[:_MOST_NAMED], "another model"]
    return f"it needs {', '.join(first)} or {last}" if first else f"it needs {last}"


def _make_binding(role: WorkflowRole, persona: AgentPersona, explanation: str) -> Binding:
    facts = {
        "role": role.model_dump(by_alias=True, exclude_defaults=True),
        "persona_hash": persona.content_hash,
        "backend": persona.backend.value,
    }
    return Binding(role.id, persona, persona.content_hash, persona.backend, content_hash(facts), explanation)


def _explain(role: WorkflowRole, chosen: AgentPersona, others: list[Candidate], *, is_override: bool) -> str:
    able = [candidate for candidate in others if candidate.is_eligible]
    parts = [_why_chosen(role, chosen, is_override=is_override)]
    if able and not is_override:
        parts.append("after it: " + ", ".join(f"{one.persona.name} ({_why_after(role, chosen, one)})" for one in able))
    if unable := _list_reasons(others):
        parts.append(f"not eligible because {unable}")
    return "; ".join(parts)


def _why_chosen(role: WorkflowRole, chosen: AgentPersona, *, is_override: bool) -> str:
    covers = f"it covers {', '.join(role.required_capabilities)}" if role.required_capabilities else "any persona fits"
    if is_override:
        return f"{chosen.name} {_OVERRIDE_REASON}; {covers} and backend {chosen.backend} is available"
    rank = _backend_rank(role, chosen)
    liked = f"is choice {rank + 1} of the role" if rank < len(role.preferred_backends) else "is available"
    return f"{chosen.name} chosen because {covers} and backend {chosen.backend} {liked}"


def explains_override(explanation: str) -> bool:
    """Tell from its explanation whether a binding was an override."""
    return _OVERRIDE_REASON in explanation.partition(";")[0]


def _why_after(role: WorkflowRole, chosen: AgentPersona, candidate: Candidate) -> str:
    unasked = "" if candidate.is_certain else ", its server was not asked"
    return f"{_compare(role, chosen, candidate.persona)}{unasked}"


def _compare(role: WorkflowRole, chosen: AgentPersona, other: AgentPersona) -> str:
    if _backend_rank(role, chosen) != _backend_rank(role, other):
        return f"backend {other.backend} is less preferred"
    if version_order(chosen.version) != version_order(other.version):
        return f"version {other.version} is lower"
    return "by name" if chosen.name != other.name else "by hash"


def _list_reasons(candidates: list[Candidate], *, most_named: int | None = None) -> str:
    names_by_reason: dict[str, list[str]] = {}
    for candidate in candidates:
        if not candidate.is_eligible:
            names_by_reason.setdefault(" and ".join(candidate.reasons), []).append(candidate.persona.name)
    return "; ".join(f"{reason} ({_name(names, most_named)})" for reason, names in names_by_reason.items())


def _name(names: Sequence[str], most: int | None) -> str:
    more = 0 if most is None else max(0, len(names) - most)
    return ", ".join(names[:most]) + (f" and {more} more" if more else "")


def check_consent(personas: Iterable[AgentPersona], consent_store: PersonaConsentStore | None) -> None:
    """Raise `ConsentRequired` for those that need a consent which the store does not hold."""
    asking = {persona.content_hash: persona for persona in personas if persona.requires_consent}
    missing = [
        persona for persona in asking.values() if consent_store is None or not consent_store.has_consent(persona)
    ]
    if missing:
        names = ", ".join(persona.name for persona in missing)
        raise ConsentRequired(
            f"Consent is needed before {names} may work.",
            hint=f"Read the persona, then agree to it once, until it changes: holdfast trust {missing[0].name}",
            personas=[{"name": persona.name, "hash": persona.content_hash} for persona in missing],
        )
