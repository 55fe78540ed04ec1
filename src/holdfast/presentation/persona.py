"""A persona as people read of it: whether it is ready, what it costs, what it may touch."""

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.catalog import CatalogEntry
from holdfast.enums import Backend
from holdfast.persona import AgentPersona
from holdfast.presentation.format import money
from holdfast.presentation.status import Note

_NETWORK = {
    "allow": "commands may use the network",
    "ask": "a person decides when a command wants the network",
    "deny": "commands are cut off from the network",
}

_STATUSES = {
    "ready": Note("good", "Ready"),
    "missing": Note("waiting", "Not ready"),
    "rehearsal": Note("idle", "Rehearsals only"),
}


@dataclass(frozen=True)
class ModelPrices:
    """Dollars per million tokens, and when they were last compared with what the provider publishes."""

    input_usd: float
    output_usd: float
    checked: str
    context_tokens: int


@dataclass(frozen=True)
class PersonaCard:
    """`group` is `ready`, `missing` or `rehearsal`; `facts` are pairs of a name and what is to be known."""

    group: str
    status: Note
    description: str
    backend: str
    engine: str
    """Its model, or the command that is run."""
    capabilities: list[str]
    price: str
    facts: list[tuple[str, str]]
    instructions: str


def to_persona_card(
    entry: CatalogEntry[AgentPersona],
    *,
    is_available: bool,
    model_id: str,
    prices: ModelPrices | None,
    tools: list[str],
) -> PersonaCard:
    persona = entry.definition
    group = "rehearsal" if persona.backend is Backend.SIMULATED else "ready" if is_available else "missing"
    return PersonaCard(
        group,
        _STATUSES[group],
        persona.description,
        persona.backend.value,
        model_id or " ".join(persona.argv or ()),
        [capability.value for capability in persona.capabilities],
        _tell_price(persona, prices),
        list(_facts(entry, tools)),
        persona.system_prompt,
    )


def _tell_price(persona: AgentPersona, prices: ModelPrices | None) -> str:
    if persona.backend is Backend.SIMULATED:
        return "Pays nothing"
    if prices is not None:
        each = f"{money(prices.input_usd)} in, {money(prices.output_usd)} out"
        return f"{each} per million tokens, as of {prices.checked}"
    is_command = persona.backend is Backend.COMMAND
    return "Paid by the program's own account" if is_command else "No price is known; its calls count as $0"


def _facts(entry: CatalogEntry[AgentPersona], tools: list[str]) -> Iterator[tuple[str, str]]:
    persona = entry.definition
    yield "Tools", ", ".join(tools) or "the program's own"
    yield "Limits", "; ".join([*_rules(persona), _NETWORK[persona.permissions.network.value]])
    if persona.fallback_models:
        yield "If it fails", ", ".join(persona.fallback_models)
    if persona.max_output_tokens:
        yield "Longest answer", f"{persona.max_output_tokens:,} tokens"
    if persona.base_url:
        yield "Server", persona.base_url
    yield "Version", f"{persona.version}, {entry.source.value}, {persona.content_hash[:12]}"


def _rules(persona: AgentPersona) -> Iterator[str]:
    permissions = persona.permissions
    for what, rules in (("read", permissions.read), ("write", permissions.write), ("run", permissions.commands)):
        for how, patterns in (("", rules.allow), ("ask before: ", rules.ask), ("never ", rules.deny)):
            if patterns:
                yield f"{how}{what} {', '.join(patterns)}"
