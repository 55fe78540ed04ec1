"""From a folder to a conversation that can be spoken in, for the prompt and for a single question."""

import asyncio
import contextlib
import importlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.catalog import Catalog
from holdfast.cli.repl.conversation import Talk, find_bound_persona
from holdfast.cli.repl.view import TalkView
from holdfast.cli.terminal.arguments import get_user
from holdfast.cli.terminal.engine import open_engine
from holdfast.config import load_config
from holdfast.consent import open_consents
from holdfast.engine.conversation.persona_choice import choose_persona
from holdfast.enums import Backend
from holdfast.readiness import AgreedDefinitions, open_readiness
from holdfast.workspace.user_checkout import find_branch


@dataclass(frozen=True)
class TalkOptions:
    """What was said on the command line: which conversation, with whom."""

    run_id: str | None = None
    persona: str | None = None
    is_simulated: bool = False
    is_unsandboxed: bool = False

    @property
    def is_persona_named(self) -> bool:
        return self.persona is not None or self.is_simulated


@dataclass(frozen=True)
class OpenTalk:
    talk: Talk
    catalog: Catalog
    loading: "asyncio.Task[Any]"
    """Is done when what agents need is imported."""


@contextlib.asynccontextmanager
async def open_talk(
    repo: Path,
    options: TalkOptions,
    tell: Callable[[str], None],
    *,
    view: type[TalkView] = TalkView,
    can_ask: bool = True,
) -> AsyncIterator[OpenTalk]:
    """Open a conversation with who was named, was spoken with before, or can answer. Raises as `choose_persona`."""
    config = load_config()
    catalog = Catalog.for_repository(repo, config.config_dir)
    persona = find_bound_persona(options.run_id) if options.run_id and not options.is_persona_named else None
    entries, consents = catalog.list_personas(), open_consents(config)
    readiness = open_readiness(entries, config, repo=repo, consents=consents)
    if persona is None:
        persona = choose_persona(
            *(entries, repo, consents), name=options.persona, is_simulated=options.is_simulated, readiness=readiness
        )
    # Importing what agents need takes a second or two, which a person spends typing.
    loading = asyncio.create_task(asyncio.to_thread(_load, persona.backend))
    is_rehearsal = persona.backend is Backend.SIMULATED
    async with open_engine(
        repo=repo, is_simulated=is_rehearsal, agreed=AgreedDefinitions(entries, readiness)
    ) as opened:
        talk = Talk(
            opened,
            repo=repo,
            branch=find_branch(repo),
            persona=persona,
            tell=tell,
            loading=loading,
            view=view,
            can_ask=can_ask,
        )
        talk.is_unsandboxed = options.is_unsandboxed
        if options.is_unsandboxed and options.run_id is not None:
            await opened.engine.change(options.run_id, is_unsandboxed=True, by=get_user())
        yield OpenTalk(talk, catalog, loading)


_NEEDED = (
    "holdfast.engine.conversation.messages",
    "holdfast.engine.phase.middleware",
    "holdfast.agents.calls.summaries",
    "deepagents",
)
_CLIENTS = {
    Backend.ANTHROPIC: "langchain_anthropic",
    Backend.OLLAMA: "langchain_ollama",
    Backend.COMMAND: "holdfast.agents.coding_agent.agent",
    Backend.SIMULATED: "holdfast.agents.simulated.model",
}


def _load(backend: Backend) -> None:
    """Import what an answer needs, so that nothing stands still when it begins."""
    for name in (*_NEEDED, _CLIENTS.get(backend, "holdfast.agents.models.openai")):
        with contextlib.suppress(ImportError):  # whoever needs it says what is missing
            importlib.import_module(name)
