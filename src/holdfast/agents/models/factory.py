"""From a persona to its chat models: the one it names, and those that stand in for it.

Rule: a client gets everything explicitly. What it would take from the environment by itself (another provider's key or
address) must not reach a server that the persona names. Retries are not the client's but the journal's.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.agents.calls.retries import Timeouts
from holdfast.agents.redaction import read_key
from holdfast.catalog.model_table import ModelCard, load_model_table
from holdfast.config import Config
from holdfast.definitions.model_settings import Effort, ModelSettings
from holdfast.enums import Backend
from holdfast.errors import BackendUnavailable
from holdfast.persona import AgentPersona

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

ADDRESSES = {Backend.OPENAI: "https://api.openai.com/v1", Backend.OPENROUTER: "https://openrouter.ai/api/v1"}
UNKNOWN_CONTEXT_TOKENS = 128_000  # of a model that is in no table; too much is found out by the server's refusal
_OLLAMA_CONTEXT_TOKENS = 32_768  # its own default of a few thousand cuts agents off in silence; more needs much memory
_NO_KEY = "none"  # where nothing is sent the client would look for a key of its own


@dataclass(frozen=True, slots=True)
class _ModelSpec:
    """One model of a persona, with all its client is told."""

    persona: AgentPersona
    model: str
    key: str
    card: ModelCard | None
    timeouts: Timeouts

    @property
    def max_output_tokens(self) -> int | None:
        return self.persona.output_limit or (self.card.max_output_tokens if self.card else None)

    @property
    def settings(self) -> ModelSettings:
        return self.persona.model_settings

    @property
    def sampling(self) -> dict[str, Any]:
        """The settings that every client takes under the same name; what nobody set is not sent."""
        return self.settings.model_dump(include={"temperature", "top_p"}, exclude_none=True)

    @property
    def profile(self) -> dict[str, Any]:
        """How much it can be asked at once; summaries are made by that."""
        context = self.card.context_tokens if self.card else UNKNOWN_CONTEXT_TOKENS
        return {"max_input_tokens": max(context - (self.max_output_tokens or 0), context // 2), **self.senses}

    @property
    def senses(self) -> dict[str, bool]:
        """Whether it takes images, where it is known that it does not."""
        known = self.card.vision if self.card and self.persona.vision is None else self.persona.vision
        return {"image_inputs": False} if known is False else {}


def open_models(
    persona: AgentPersona, config: Config, *, timeouts: Timeouts | None = None
) -> "tuple[BaseChatModel, ...]":
    """Open the persona's model and its fallbacks, in this order. Raises `BackendUnavailable`."""
    opener = _OPENERS.get(persona.backend)
    if opener is None:
        raise BackendUnavailable(
            f"Persona {persona.name} has the backend {persona.backend}, which is no model.",
            hint="Run with --simulate, or bind the role to another persona.",
            persona=persona.name,
            backend=persona.backend.value,
        )
    timeouts = timeouts or Timeouts.of(persona, config)
    table = load_model_table(config.config_dir)
    variable = persona.key_variable
    key = read_key(variable, persona=persona.name) if variable else _NO_KEY
    names = [persona.model, *persona.fallback_models]
    return tuple(
        opener(
            _ModelSpec(
                persona,
                table.resolve_id(persona.backend, name),
                key,
                table.find_model(persona.backend, name.partition(":")[0] if _is_simulated(persona) else name),
                timeouts,
            )
        )
        for name in dict.fromkeys(names)
    )


def _is_simulated(persona: AgentPersona) -> bool:
    return persona.backend is Backend.SIMULATED


def _open_simulated(spec: _ModelSpec) -> "BaseChatModel":
    from holdfast.agents.simulated.model import open_simulated_model

    return open_simulated_model(spec.model, max_tokens=spec.max_output_tokens, script=spec.persona.script)


def _open_openai(spec: _ModelSpec) -> "BaseChatModel":
    from holdfast.agents.models.openai import OpenAIChat

    persona, timeouts = spec.persona, spec.timeouts
    is_openai = persona.backend is Backend.OPENAI
    settings: dict[str, Any] = {
        "model": spec.model,
        "base_url": persona.base_url or ADDRESSES[persona.backend],
        "api_key": spec.key,
        "max_completion_tokens": spec.max_output_tokens,
        "profile": spec.profile,
        "timeout": _timeout(timeouts),
        # The call's own deadline does that. The client's loses cancellations on Python 3.11.
        "stream_chunk_timeout": None,
        "max_retries": 0,
        "use_responses_api": False,
        "streaming": True,
        "stream_usage": True,
        "is_openai": is_openai,
        "can_look_up_costs": persona.backend is Backend.OPENROUTER,
        **spec.sampling,
    }
    if persona.backend is Backend.OPENROUTER:
        settings["extra_body"] = {
            "usage": {"include": True},
            **_to_openrouter_reasoning(spec.settings),
        }  # with the cost
    elif spec.settings.effort is not None:
        settings["reasoning_effort"] = spec.settings.effort.value
    model = _make(OpenAIChat, **settings)
    if isinstance(model, OpenAIChat) and not is_openai:
        model.forget_account()
    return model


def _open_anthropic(spec: _ModelSpec) -> "BaseChatModel":
    chat_class = _import_client("langchain_anthropic", "ChatAnthropic", spec)
    return _make(
        chat_class,
        model=spec.model,
        api_key=spec.key,
        base_url=spec.persona.base_url or "https://api.anthropic.com",
        timeout=spec.timeouts.idle_s,
        max_retries=0,
        max_tokens=spec.max_output_tokens or 8192,
        streaming=True,
        profile=spec.profile,
        **spec.sampling,
        **_to_anthropic_thinking(spec.settings),
    )


def _open_ollama(spec: _ModelSpec) -> "BaseChatModel":
    chat_class = _import_client("langchain_ollama", "ChatOllama", spec)
    context = min(spec.card.context_tokens if spec.card else UNKNOWN_CONTEXT_TOKENS, _OLLAMA_CONTEXT_TOKENS)
    limit = spec.max_output_tokens
    headers = {} if spec.key == _NO_KEY else {"headers": {"Authorization": f"Bearer {spec.key}"}}
    return _make(
        chat_class,
        model=spec.model,
        base_url=spec.persona.base_url or "http://127.0.0.1:11434",
        num_predict=limit,
        num_ctx=context,
        client_kwargs={"timeout": _timeout(spec.timeouts), **headers},
        profile={"max_input_tokens": max(context - (limit or 0), context // 2), **spec.senses},
        **spec.sampling,
        **_to_ollama_thinking(spec.settings),
    )


def _to_openrouter_reasoning(settings: ModelSettings) -> dict[str, Any]:
    if settings.thinking_tokens is not None:
        return {"reasoning": {"max_tokens": settings.thinking_tokens}}
    return {} if settings.effort is None else {"reasoning": {"effort": settings.effort.value}}


def _to_anthropic_thinking(settings: ModelSettings) -> dict[str, Any]:
    if settings.thinking_tokens is not None:
        return {"thinking": {"type": "enabled", "budget_tokens": settings.thinking_tokens}}
    if settings.effort is Effort.NONE:
        return {"thinking": {"type": "disabled"}}
    return {} if settings.effort is None else {"effort": settings.effort.value}


def _to_ollama_thinking(settings: ModelSettings) -> dict[str, Any]:
    if settings.effort is None:
        return {}
    return {"reasoning": False if settings.effort is Effort.NONE else settings.effort.value}


def _timeout(timeouts: Timeouts) -> Any:
    import httpx

    return httpx.Timeout(timeouts.idle_s, connect=timeouts.connect_s)


def _make(chat_class: Callable[..., Any], **settings: Any) -> "BaseChatModel":
    from holdfast.agents.calls.live_text import LiveTextCallback

    made: BaseChatModel = chat_class(callbacks=[LiveTextCallback()], **settings)
    return made


def _import_client(module: str, name: str, spec: _ModelSpec) -> Callable[..., Any]:
    backend = spec.persona.backend
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise BackendUnavailable(
            f"Persona {spec.persona.name} needs the backend {backend}, which is not installed.",
            hint=f"Install it: pip install 'holdfast[{backend}]'.",
            persona=spec.persona.name,
            backend=backend.value,
        ) from error
    return found


_OPENERS: Mapping[Backend, Callable[[_ModelSpec], "BaseChatModel"]] = {
    Backend.SIMULATED: _open_simulated,
    Backend.OPENAI: _open_openai,
    Backend.OPENAI_COMPATIBLE: _open_openai,
    Backend.OPENROUTER: _open_openai,
    Backend.ANTHROPIC: _open_anthropic,
    Backend.OLLAMA: _open_ollama,
}
