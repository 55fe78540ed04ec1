"""How a model answers, as personas and the phases of workflows set it."""

from enum import StrEnum

from pydantic import Field, model_validator

from holdfast.definitions.base import Definition, refuse


class Effort(StrEnum):
    """How much a model thinks before it answers. Not every provider knows every word; one that does not says so."""

    NONE = "none"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"


class ModelSettings(Definition):
    """How a model answers; what is left out is up to its provider.

    `thinking_tokens` is for providers that take a number instead of an `effort`.
    """

    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    effort: Effort | None = None
    thinking_tokens: int | None = Field(default=None, ge=1024, le=1_000_000)
    max_output_tokens: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _is_one_way_to_think(self) -> "ModelSettings":
        if self.effort is not None and self.thinking_tokens is not None:
            refuse([(("thinking_tokens",), "effort says already how much it thinks; set one of the two")])
        return self
