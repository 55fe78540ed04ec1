"""Personas: which there are, which could work here and now, and what keeps the others from it."""

import asyncio
import functools
from pathlib import Path

from fastapi import APIRouter
from pydantic import BaseModel, Field

from holdfast.agents.build import list_permitted_tools
from holdfast.api.http.auth import Viewer
from holdfast.api.http.openapi import READ
from holdfast.api.schemas import CatalogList, RepoQuery
from holdfast.api.serialize import to_catalog_item
from holdfast.api.server.engines import Engines
from holdfast.api.server.server import ServerDep
from holdfast.catalog import CatalogEntry
from holdfast.catalog.model_table import ModelCard, ModelTable, load_model_table
from holdfast.config import Config
from holdfast.consent import PersonaConsentStore, open_consents
from holdfast.enums import Backend
from holdfast.persona import AgentPersona
from holdfast.presentation.persona import ModelPrices, PersonaCard, to_persona_card
from holdfast.readiness import Readiness, list_missing

router = APIRouter(tags=["catalog"])


class PersonaAvailability(BaseModel):
    name: str
    is_available: bool = Field(description="It can be bound to a role; a simulated one only in a rehearsal.")
    reasons: list[str] = Field(description="What is missing, in words.", examples=[["OPENAI_API_KEY is not set"]])
    remedy: str
    model_id: str = Field(description="The model as its provider calls it; empty for a command.")
    prices: ModelPrices | None = Field(description="`null` where the table of prices does not know the model.")
    tools: list[str]
    portrait: PersonaCard = Field(description="What to know of it, in words.")


class PersonaAvailabilityList(BaseModel):
    items: list[PersonaAvailability]


@router.get("/api/personas", responses=READ, summary="Personas that can fill a role")
async def list_personas(server: ServerDep, _identity: Viewer, repo_path: RepoQuery = None) -> CatalogList:
    catalog = await server.engines.find_catalog(repo_path)
    entries = await asyncio.to_thread(catalog.list_personas)
    return CatalogList(items=[to_catalog_item(entry) for entry in entries])


@router.get("/api/personas/availability", responses=READ, summary="Which personas could work now, and why not")
async def list_availability(
    server: ServerDep, _identity: Viewer, repo_path: RepoQuery = None
) -> PersonaAvailabilityList:
    repo = None if repo_path is None else (await server.engines.resolve_repository(repo_path)).folder
    # Shared: it asks servers, and whoever asks for it many times must not use up the threads of all others.
    work = functools.partial(_collect, server.engines, repo, server.config)
    found: PersonaAvailabilityList = await server.availability.get(repo, work)
    return found


def _collect(engines: Engines, repo: Path | None, config: Config) -> PersonaAvailabilityList:
    table = load_model_table(config.config_dir)
    consents = open_consents(config)
    entries = engines.catalog(repo).list_personas()
    readiness = engines.readiness(entries, repo)
    readiness.ask_servers(entry.definition for entry in entries)
    items = [_to_item(entry, table, readiness, consents) for entry in entries]
    order = ("ready", "missing", "rehearsal")
    return PersonaAvailabilityList(items=sorted(items, key=lambda item: order.index(item.portrait.group)))


def _to_item(
    entry: CatalogEntry[AgentPersona], table: ModelTable, readiness: Readiness, consents: PersonaConsentStore
) -> PersonaAvailability:
    persona = entry.definition
    missing = list_missing(persona, readiness, consents)
    card = table.find_model(persona.backend, persona.model) if persona.model else None
    tools = [] if persona.backend is Backend.COMMAND else list_permitted_tools(persona)
    prices = to_prices(card)
    model_id = table.resolve_id(persona.backend, persona.model) if persona.model else ""
    return PersonaAvailability(
        name=persona.name,
        is_available=not missing,
        reasons=[one.finding for one in missing],
        remedy=" ".join(f"Where the server runs: {one.remedy[0].lower()}{one.remedy[1:]}" for one in missing),
        model_id=model_id,
        prices=prices,
        tools=tools,
        portrait=to_persona_card(entry, is_available=not missing, model_id=model_id, prices=prices, tools=tools),
    )


def to_prices(card: ModelCard | None) -> ModelPrices | None:
    if card is None:
        return None
    return ModelPrices(
        input_usd=card.prices.input / 1_000_000,
        output_usd=card.prices.output / 1_000_000,
        checked=card.checked.isoformat(),
        context_tokens=card.context_tokens,
    )
