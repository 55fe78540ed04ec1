"""A subagent that is built when it is first given a task: most turns give none, and its graph is half of an agent's."""

from collections.abc import Callable
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig


class DeferredSubagent(Runnable[Any, Any]):
    """Stands in for the graph that `build` returns; the graph is built once."""

    def __init__(self, build: Callable[[], Runnable[Any, Any]]) -> None:
        self._build = build
        self._graph: Runnable[Any, Any] | None = None

    @property
    def graph(self) -> Runnable[Any, Any]:
        if self._graph is None:
            self._graph = self._build()
        return self._graph

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002  # named by the framework
        return self.graph.invoke(input, config, **kwargs)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002
        return await self.graph.ainvoke(input, config, **kwargs)
