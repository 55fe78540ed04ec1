"""What an answer has cost that never arrived: OpenRouter tells it later, by the name that the answer began with."""

import contextlib
from typing import Any

from holdfast.agents.calls.gate import Usage
from holdfast.agents.coding_agent.adapters.base import to_count, to_micros
from holdfast.agents.models.factory import ADDRESSES
from holdfast.agents.redaction import read_key
from holdfast.enums import Backend
from holdfast.errors import HoldfastError
from holdfast.persona import AgentPersona

_WAIT_S = 10.0


def can_look_up(persona: AgentPersona) -> bool:
    """Tell whether the persona's provider tells the cost of an answer by its name."""
    return persona.backend is Backend.OPENROUTER


async def look_up_cost(persona: AgentPersona, response_id: str) -> Usage | None:
    """Ask the provider what an answer has cost; `None` if it does not say. Nothing is paid for the question."""
    import httpx  # comes with the providers' clients

    address = (persona.base_url or ADDRESSES[persona.backend]).rstrip("/")
    with contextlib.suppress(httpx.HTTPError, ValueError, HoldfastError):
        headers = {"Authorization": f"Bearer {read_key(persona.key_variable or '', persona=persona.name)}"}
        async with httpx.AsyncClient(timeout=_WAIT_S, trust_env=False) as client:
            answer = await client.get(f"{address}/generation", params={"id": response_id}, headers=headers)
        return _to_usage(answer.json()) if answer.status_code == 200 else None
    return None


def _to_usage(body: Any) -> Usage | None:
    facts = body.get("data") if isinstance(body, dict) else None
    if not isinstance(facts, dict) or (cost := to_micros(facts.get("total_cost"))) is None:
        return None
    used, made = (
        to_count(facts.get(f"native_tokens_{kind}")) or to_count(facts.get(f"tokens_{kind}"))
        for kind in ("prompt", "completion")
    )
    return Usage(used, made, cost_micros=cost)
