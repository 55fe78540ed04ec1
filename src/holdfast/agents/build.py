"""From a persona to an agent: a deep agent on the run's workspace in which nothing happens beside the middleware."""

import hashlib
import inspect
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.agents.models.factory import open_models
from holdfast.agents.policy.file_policy import SCRATCH_ROUTE
from holdfast.agents.policy.web_policy import WEB_FETCH, WEB_SEARCH, WEB_TOOLS
from holdfast.agents.redaction import SECRETS
from holdfast.agents.tools.rules import FILE_TOOLS
from holdfast.config import Config
from holdfast.enums import Backend, Capability
from holdfast.persona import AgentPersona, Subagent
from holdfast.runtime.run_fold.todo_log import TODO_TOOL

if TYPE_CHECKING:
    from deepagents.backends import FilesystemBackend
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.language_models import BaseChatModel
    from langchain_core.tools import BaseTool

    from holdfast.agents.calls.middleware import JournalMiddleware

GENERAL_PURPOSE = Subagent(
    name="general-purpose",
    description="Does a well-described part of the work on its own and reports the outcome.",
)
_TRACING = ("LANGSMITH_TRACING", "LANGSMITH_TRACING_V2", "LANGCHAIN_TRACING", "LANGCHAIN_TRACING_V2")


def build_agent(
    persona: AgentPersona,
    config: Config,
    *,
    root_dir: Path,
    middleware: Sequence["AgentMiddleware[Any, Any, Any]"] = (),
    tools: Sequence["BaseTool"] = (),
    model: "BaseChatModel | None" = None,
    scratch_dir: Path | None = None,
) -> Any:
    """Build an agent with file tools on `root_dir`; `await agent.ainvoke({"messages": […]})` runs it to its end.

    The middleware, the journal first, wraps every call of the agent and of its subagents. Nothing of the framework's
    own is written into `root_dir`: it goes to `scratch_dir`. Raises `BackendUnavailable`.
    """
    _turn_tracing_off()
    SECRETS.learn_environment(os.environ)
    if persona.backend is Backend.COMMAND:
        from holdfast.agents.coding_agent.agent import CommandAgent

        scratch = scratch_dir or _default_scratch(config, root_dir)
        return CommandAgent(persona, config, root_dir=root_dir, middleware=middleware, scratch_dir=scratch)
    tools = [*tools, *_open_permitted_tools(persona, config)]
    chat_model, *fallbacks = (model,) if model is not None else open_models(persona, config)
    from deepagents import create_deep_agent
    from deepagents.backends import CompositeBackend, FilesystemBackend

    from holdfast.agents.calls.middleware import JournalMiddleware
    from holdfast.agents.deferred_subagent import DeferredSubagent
    from holdfast.agents.framework_shortcuts import take_shortcuts

    take_shortcuts()
    scratch = scratch_dir or _default_scratch(config, root_dir)
    names = _list_framework_tools(persona)
    backend = CompositeBackend(
        default=_open_files(names, config, root_dir, scratch / "staged"),
        routes={SCRATCH_ROUTE: FilesystemBackend(root_dir=scratch / "kept", virtual_mode=True)},
        artifacts_root=SCRATCH_ROUTE.rstrip("/"),
    )
    journal = next((part for part in middleware if isinstance(part, JournalMiddleware)), None)

    def to_spec(subagent: Subagent, own_model: "BaseChatModel") -> Any:
        own_names = _narrow(names, subagent)
        return {
            "name": subagent.name,
            "description": subagent.description,
            "system_prompt": subagent.system_prompt or persona.system_prompt,
            "model": own_model,
            "tools": [tool for tool in tools if subagent.tools is None or tool.name in subagent.tools],
            "middleware": [*middleware, *_own_parts(backend, own_names, own_model, journal)],
        }

    # One of the framework's own by this name would have no middleware.
    general = next((each for each in persona.subagents if each.name == GENERAL_PURPOSE.name), GENERAL_PURPOSE)
    subagents = [general, *(each for each in persona.subagents if each.name != GENERAL_PURPOSE.name)]
    more = sorted(tool.name for tool in tools)

    def assemble(helpers: list[Any]) -> Any:
        return create_deep_agent(
            chat_model,
            list(tools),
            system_prompt=persona.system_prompt,
            backend=backend,
            middleware=[*middleware, *_own_parts(backend, names, chat_model, journal)],
            subagents=helpers,
        )

    def to_deferred(subagent: Subagent) -> Any:
        own_model = open_models(persona.as_subagent(subagent), config)[0] if subagent.model else chat_model

        def build() -> Any:
            # The framework puts its own parts around a subagent's, so it builds an agent that has this one.
            agent = assemble(
                [to_spec(each, own_model) if each is subagent else deferred[each.name] for each in subagents]
            )
            graph = _subagents_of(agent)[subagent.name]
            _check_tools(f"subagent {subagent.name}", graph, _narrow([*names, *more], subagent))
            return graph

        return {"name": subagent.name, "description": subagent.description, "runnable": DeferredSubagent(build)}

    deferred = {each.name: to_deferred(each) for each in subagents}
    agent = assemble(list(deferred.values()))
    _check_tools("agent", agent, [*names, *more, "task"])
    if set(_subagents_of(agent)) != set(deferred):
        raise AssertionError(f"The agent has the subagents {sorted(_subagents_of(agent))}.")
    if journal is not None:
        journal.use_fallbacks(fallbacks)
    return agent


def _turn_tracing_off() -> None:
    """Turn tracing off, before the framework is imported: it would send prompts and results to a service."""
    for variable in _TRACING:
        os.environ[variable] = "false"


def _default_scratch(config: Config, root_dir: Path) -> Path:
    place = hashlib.sha256(str(root_dir.resolve()).encode()).hexdigest()[:16]
    return config.data_dir / "scratch" / place


def list_permitted_tools(persona: AgentPersona) -> list[str]:
    """List the tools that the agent of a persona has, with those that it has only if the persona names them."""
    permitted = persona.permissions.tools or ()
    return [*_list_framework_tools(persona), *(name for name in (TODO_TOOL, *WEB_TOOLS) if name in permitted)]


def _list_framework_tools(persona: AgentPersona) -> list[str]:
    """List the tools for files and commands, in the framework's names."""
    permitted = persona.permissions.tools
    # The framework insists on reading: long outputs are handed over as files.
    names = [name for name in FILE_TOOLS if permitted is None or name in permitted or name == "read_file"]
    has_shell = Capability.SHELL in persona.capabilities if permitted is None else "execute" in permitted
    return [*names, "execute"] if has_shell else names


def _open_permitted_tools(persona: AgentPersona, config: Config) -> "list[BaseTool]":
    """Open the tools beside files and commands, each of which a persona has to name."""
    permitted = persona.permissions.tools or ()
    tools: list[BaseTool] = []
    if TODO_TOOL in permitted:
        from holdfast.agents.tools.todos import open_todo_tool

        tools.append(open_todo_tool())
    if WEB_FETCH in permitted:
        from holdfast.agents.tools.web import open_fetch_tool

        tools.append(open_fetch_tool(persona.permissions))
    if WEB_SEARCH in permitted:
        from holdfast.agents.tools.web import open_search_tool

        tools.append(open_search_tool(config.search_url))
    return tools


def _open_files(names: list[str], config: Config, root_dir: Path, staging_dir: Path) -> "FilesystemBackend":
    from holdfast.agents.tools.files import WholeFileBackend

    if "execute" not in names:
        return WholeFileBackend(root_dir, staging_dir=staging_dir)
    from holdfast.agents.tools.execute import ShellBackend
    from holdfast.agents.tools.shell import open_shell

    shell = open_shell(root_dir, data_dir=config.data_dir)
    return ShellBackend(root_dir, staging_dir=staging_dir, shell=shell)


def _own_parts(
    backend: Any, names: list[str], chat_model: "BaseChatModel", journal: "JournalMiddleware | None"
) -> list[Any]:
    """Make our versions of parts of the framework's stack; each takes the place of the part of the same name."""
    from deepagents import FilesystemMiddleware
    from langchain.agents.middleware import AgentMiddleware

    class NoSummaries(AgentMiddleware[Any, Any, Any]):
        """The framework's summaries are model calls that nobody sees; without a journal there are none."""

        @property
        def name(self) -> str:
            return "SummarizationMiddleware"

    from holdfast.agents.tools.execute import DESCRIPTION

    files = FilesystemMiddleware(
        backend=backend,
        custom_tool_descriptions={"execute": DESCRIPTION},
        tools=names,  # type: ignore[arg-type]  # the names are the literals it asks for
        human_message_token_limit_before_evict=None,  # it would put a random path into the prompt
    )
    if journal is None:
        return [files, NoSummaries()]
    from holdfast.agents.calls.summaries import JournaledSummaries

    return [files, JournaledSummaries(chat_model, backend=backend, journal=journal)]


def _narrow(names: Sequence[str], subagent: Subagent) -> list[str]:
    """Return those of the agent's tools that a subagent has; the framework insists on reading."""
    permitted = subagent.tools
    return [name for name in names if permitted is None or name in permitted or name == "read_file"]


def _check_tools(who: str, graph: Any, expected: Sequence[str]) -> None:
    """Raise if a new version of the framework brought a tool that our middleware does not know."""
    if set(_tools_of(graph)) != set(expected):
        raise AssertionError(f"The {who} has the tools {sorted(_tools_of(graph))}.")


def _tools_of(graph: Any) -> dict[str, Any]:
    found: dict[str, Any] = graph.nodes["tools"].bound.tools_by_name
    return found


def _subagents_of(agent: Any) -> dict[str, Any]:
    """Return the agents behind the `task` tool. Only the closures of its functions hold them, so those are searched."""
    waiting, seen = [_tools_of(agent)["task"].coroutine], set()
    while waiting:
        function = waiting.pop()
        if not inspect.isfunction(function) or function in seen:
            continue
        seen.add(function)
        closure = inspect.getclosurevars(function).nonlocals
        if "subagent_graphs" in closure:
            return {name: getattr(graph, "bound", graph) for name, graph in closure["subagent_graphs"].items()}
        waiting.extend(closure.values())
    return {}
