"""How a model sees tools: their schemas, and about how many tokens these take.

The framework makes tools anew for each agent and copies them for each call, and works a schema out anew for each copy.
Here that is done once in a process for what is the same: name, description and class of the arguments.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

_KNOWN_MOST = 500
_KNOWN: dict[tuple[str, Hashable], Any] = {}


def describe_tools(tools: Sequence[BaseTool | dict[str, Any]]) -> list[Any]:
    """List what decides how a model sees the tools. The tools themselves cannot be compared: the framework copies them
    for every call."""
    return [tool if isinstance(tool, dict) else _describe(tool) for tool in tools]


def tool_schema(tool: BaseTool | dict[str, Any]) -> Any:
    """Return how a model sees a tool. What is returned belongs to all who ask: nobody changes it."""
    if isinstance(tool, dict):
        return tool
    return _work_out_once("schema", _describe(tool), lambda: convert_to_openai_tool(tool))


def count_tool_tokens(tools: Sequence[BaseTool | dict[str, Any]]) -> int:
    """Estimate the tokens of tools as the framework does."""
    key = tuple(describe_tools(tools))
    return int(_work_out_once("tokens", key, lambda: count_tokens_approximately([], tools=list(tools))))


def _describe(tool: BaseTool) -> tuple[Any, ...]:
    return (tool.name, tool.description, tool.args_schema)


def _work_out_once(kind: str, key: Any, work_out: Callable[[], Any]) -> Any:
    try:
        known = _KNOWN.get((kind, key))
    except TypeError:  # arguments described by a dictionary, which cannot be a key
        return work_out()
    if known is None:
        if len(_KNOWN) >= _KNOWN_MOST:
            _KNOWN.clear()
        known = _KNOWN[kind, key] = work_out()
    return known
