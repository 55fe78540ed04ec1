"""The one table of models: which identifier a short name stands for, what it costs, and when that was last checked.

Prices are whole micro-dollars per million tokens, so money never passes through a float.
"""

from collections.abc import Mapping
from datetime import date
from pathlib import Path

from pydantic import Field

from holdfast.definitions.base import Definition
from holdfast.definitions.yaml_file import load_definition
from holdfast.enums import Backend
from holdfast.errors import ConfigInvalid
from holdfast.persona import AgentPersona

PACKAGED_TABLE = Path(__file__).parent / "models.yaml"


class Prices(Definition):
    """Micro-dollars per million tokens. What is read from or written to a cache costs as input unless it is given."""

    input: int = Field(ge=0)
    output: int = Field(ge=0)
    cached_input: int | None = Field(default=None, ge=0)
    cache_write: int | None = Field(default=None, ge=0)


class LongPrices(Prices):
    """The prices of a whole request whose input is longer than `above_input_tokens`."""

    above_input_tokens: int = Field(ge=1)


class ModelCard(Definition):
    """What is known about one model of one backend."""

    backend: Backend
    id: str = Field(min_length=1)
    checked: date
    context_tokens: int = Field(ge=1)
    max_output_tokens: int = Field(ge=1)
    prices: Prices
    long_prices: LongPrices | None = None
    vision: bool | None = None
    """Whether it takes images; nothing where that is not known."""

    def cost_micros(
        self, *, input_tokens: int, output_tokens: int, cached_tokens: int = 0, cache_write_tokens: int = 0
    ) -> int:
        """Return the cost of a call in micro-dollars, rounded up. The cached tokens are part of `input_tokens`."""
        prices: Prices = self.prices
        if self.long_prices and input_tokens > self.long_prices.above_input_tokens:
            prices = self.long_prices
        cached = prices.input if prices.cached_input is None else prices.cached_input
        written = prices.input if prices.cache_write is None else prices.cache_write
        plain_tokens = max(0, input_tokens - cached_tokens - cache_write_tokens)
        total = plain_tokens * prices.input + cached_tokens * cached + cache_write_tokens * written
        total += output_tokens * prices.output
        return -(-total // 1_000_000)

    def estimate_micros(self, *, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> int:
        """Return what many calls together have cost, as far as it can be told: none of them counts as a long one."""
        plain = self.model_copy(update={"long_prices": None})
        cached = min(cached_tokens, input_tokens)
        return plain.cost_micros(input_tokens=input_tokens, output_tokens=output_tokens, cached_tokens=cached)


class ModelTable(Definition):
    """Models by the short name that personas use."""

    models: Mapping[str, ModelCard]

    def find_model(self, backend: Backend, model: str) -> ModelCard | None:
        """Find the card by a short name or by the provider's own identifier; `None` if the table does not know it."""
        card = self.models.get(model)
        if card is not None and card.backend is backend:
            return card
        known = (card for card in self.models.values() if card.backend is backend and card.id == model)
        return next(known, None)

    def find_named(self, model: str) -> ModelCard | None:
        """Find the card of a model that a program names without saying whose it is; the provider's own one first."""
        paid = [card for card in self.models.values() if card.backend in (Backend.OPENAI, Backend.ANTHROPIC)]
        paid += [
            card for card in self.models.values() if card.backend in (Backend.OPENROUTER, Backend.OPENAI_COMPATIBLE)
        ]
        known = self.models.get(model)
        if known in paid:
            return known
        return next((card for card in paid if model in (card.id, card.id.rpartition("/")[2])), None)

    def takes_images(self, persona: AgentPersona) -> bool:
        """Tell whether a persona's model may take images: it does unless it is known not to."""
        card = self.find_model(persona.backend, persona.model)
        known = persona.vision if persona.vision is not None else card.vision if card is not None else None
        return known is not False

    def resolve_id(self, backend: Backend, model: str) -> str:
        """Return the provider's identifier for a short name; anything the table does not know is taken to be one."""
        card = self.find_model(backend, model)
        return card.id if card else model


def load_model_table(config_dir: str | Path | None = None) -> ModelTable:
    """Load the packaged table, with the entries of the user's `models.yaml` before it. Raises `ConfigInvalid`.

    A repository's own folder is not looked at: prices guard the user's money, and a repository may be a stranger's.
    """
    table = load_definition(PACKAGED_TABLE, ModelTable, ConfigInvalid)
    own = Path(config_dir) / "models.yaml" if config_dir is not None else None
    if own is None or not own.is_file():
        return table
    return ModelTable(models={**table.models, **load_definition(own, ModelTable, ConfigInvalid).models})
