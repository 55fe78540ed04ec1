"""Which personas could work here and now, and what keeps the others from it."""

import asyncio
import shutil
from collections.abc import Iterator

from fastapi import APIRouter
from pydantic import BaseModel, Field

from holdfast.agents.build import list_permitted_tools
from holdfast.api.auth import Viewer
from holdfast.api.catalog import RepoQuery
from holdfast.api.params import ServerDep
from holdfast.api.responses import READ
from holdfast.binding import PersonaConsentStore
from holdfast.catalog import Catalog
from holdfast.catalog.models import ModelCard, ModelTable, load_model_table
from holdfast.cli.health import SERVERS, is_reachable
from holdfast.config import Config
from holdfast.enums import Backend
from holdfast.keys import find_key
from holdfast.persona import AgentPersona

router = APIRouter(tags=["catalog"])


class ModelPrices(BaseModel):
    """Dollars per million tokens, and when they were last compared with what the provider publishes."""

    input_usd: float
    output_usd: float
    checked: str
    context_tokens: int


class PersonaAvailability(BaseModel):
    name: str
    is_available: bool = Field(description="It can be bound to a role; a simulated one only in a rehearsal.")
    reasons: list[str] = Field(description="What is missing, in words.", examples=[["OPENAI_API_KEY is not set"]])
    remedy: str
    model_id: str = Field(description="The model as its provider calls it; empty for a command.")
    prices: ModelPrices | None = Field(description="`null` where the table of prices does not know the model.")
    tools: list[str]


class PersonaAvailabilityList(BaseModel):
    items: list[PersonaAvailability]


@router.get("/api/personas/availability", responses=READ, summary="Which personas could work now, and why not")
async def list_availability(
    server: ServerDep, _identity: Viewer, repo_path: RepoQuery = None
) -> PersonaAvailabilityList:
    repo = None if repo_path is None else await server.engines.resolve_repository(repo_path)
    return await asyncio.to_thread(_collect, server.engines.catalog(repo), server.config)


def _collect(catalog: Catalog, config: Config) -> PersonaAvailabilityList:
    table = load_model_table(config.config_dir)
    consents = open_consents(config)
    personas = [entry.definition for entry in catalog.list_personas()]
    return PersonaAvailabilityList(items=[_to_item(persona, table, consents) for persona in personas])


def open_consents(config: Config) -> PersonaConsentStore:
    return PersonaConsentStore(config.data_dir / "consents.json")


def _to_item(persona: AgentPersona, table: ModelTable, consents: PersonaConsentStore) -> PersonaAvailability:
    missing = list(_find_missing(persona, consents))
    card = table.find_model(persona.backend, persona.model) if persona.model else None
    is_command = persona.backend is Backend.COMMAND
    return PersonaAvailability(
        name=persona.name,
        is_available=not missing,
        reasons=[reason for reason, _ in missing],
        remedy=" ".join(remedy for _, remedy in missing),
        model_id=table.resolve_id(persona.backend, persona.model) if persona.model else "",
        prices=to_prices(card),
        tools=[] if is_command else list_permitted_tools(persona),
    )


def _find_missing(persona: AgentPersona, consents: PersonaConsentStore) -> Iterator[tuple[str, str]]:
    if persona.key_variable is not None and not find_key(persona.key_variable):
        yield f"{persona.key_variable} is not set", f"Set {persona.key_variable} where the server is started."
    if persona.key_variable is None and (address := _local_address(persona)) and not is_reachable(address):
        yield f"{address} does not answer", "Start the model server there."
    if persona.argv and shutil.which(persona.argv[0]) is None:
        yield f"{persona.argv[0]} is not on the path", f"Install {persona.argv[0]} on the server's machine."
    if persona.requires_consent and not consents.has_consent(persona):
        yield "nobody has agreed to it yet", "Consent is recorded once, on the server's machine."


def _local_address(persona: AgentPersona) -> str | None:
    return persona.base_url or SERVERS.get(persona.backend.value)


def to_prices(card: ModelCard | None) -> ModelPrices | None:
    if card is None:
        return None
    return ModelPrices(
        input_usd=card.prices.input / 1_000_000,
        output_usd=card.prices.output / 1_000_000,
        checked=card.checked.isoformat(),
        context_tokens=card.context_tokens,
    )
