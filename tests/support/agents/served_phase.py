"""A phase on a model server: the real client over real HTTP, the real agent, a real journal."""

from dataclasses import dataclass, field
from typing import Any

from tests.support.agents.phase import Phase

from holdfast.agents.calls.retries import RetryRules, Timeouts
from holdfast.agents.models.factory import open_models
from holdfast.enums import Backend
from holdfast.persona import AgentPersona

KEY_VARIABLE = "HOLDFAST_TEST_MODEL_KEY"
KEY = "planted-4f9d2c71aa-key"
QUICK = RetryRules(tries=3, backoff_s=0.001)


@dataclass
class ServedPhase(Phase):
    """Its models are the server's: `main` first, then the `fallback_models`."""

    address: str = ""
    fallback_models: tuple[str, ...] = ()
    timeouts: Timeouts = field(default_factory=Timeouts)
    options: dict[str, Any] = field(default_factory=lambda: {"retries": QUICK})

    @property
    def persona(self) -> AgentPersona:
        return AgentPersona(
            name="served",
            version=1,
            backend=Backend.OPENAI_COMPATIBLE,
            model="main",
            base_url=self.address,
            api_key_env=KEY_VARIABLE,
            capabilities=super().persona.capabilities,
            system_prompt="You work.",
            fallback_models=self.fallback_models,
        )

    def agent(self, journal: Any, **more: Any) -> Any:
        model, *fallbacks = open_models(self.persona, self.config, timeouts=self.timeouts)
        agent = super().agent(journal, **{"model": model, **more})
        journal.use_fallbacks(fallbacks)
        return agent
