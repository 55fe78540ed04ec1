"""What is spared the agents of a process changes nothing that they do."""

import inspect
import typing
from typing import Any

import pytest
from langchain.agents import factory
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.todo import PlanningState
from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool
from tests.support.agents.phase import Phase

from holdfast.agents.build import build_agent
from holdfast.agents.framework_shortcuts import take_shortcuts


class Callers(AgentMiddleware[Any, Any, Any]):
    """Notes the modules of the functions below it on the stack of a model call."""

    def __init__(self) -> None:
        super().__init__()
        self.modules: set[str] = set()

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        self.modules |= {frame.frame.f_globals.get("__name__", "") for frame in inspect.stack(0)}
        return AIMessage("done")


async def test_no_call_of_an_agent_goes_through_a_tracing_service(phase: Phase) -> None:
    callers = Callers()
    agent = build_agent(phase.persona, phase.config, root_dir=phase.root, middleware=[callers])

    await agent.ainvoke({"messages": [("user", "hello")]})

    assert factory.__name__ in callers.modules
    assert not [name for name in callers.modules if name.startswith("langsmith")]


@pytest.mark.parametrize("annotated", [PlanningState, StructuredTool._arun])
def test_evaluated_annotations_mean_what_was_written(annotated: Any) -> None:
    hints = [typing.get_type_hints(annotated, include_extras=extras) for extras in (True, False)]

    take_shortcuts.__wrapped__()

    assert [typing.get_type_hints(annotated, include_extras=extras) for extras in (True, False)] == hints
    assert not any(isinstance(hint, str | typing.ForwardRef) for hint in annotated.__annotations__.values())
