"""What is spared the agents of a process changes nothing that they do."""

import dis
import inspect
import sys
import typing
from typing import Any

import pytest
from langchain.agents import factory
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.todo import PlanningState
from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool
from langgraph.pregel import _utils
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


@pytest.mark.parametrize("gone", ["langgraph.pregel._utils", "langchain.agents.factory"])
def test_a_module_that_a_newer_framework_no_longer_has_makes_agents_only_slower(
    monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    package, _, name = gone.rpartition(".")
    monkeypatch.setitem(sys.modules, gone, None)
    monkeypatch.delattr(sys.modules[package], name)

    take_shortcuts.__wrapped__()


def test_a_tool_without_the_method_that_is_named_here_is_none_to_fail_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(StructuredTool, "_arun")

    take_shortcuts.__wrapped__()


def test_what_stands_in_for_the_disassembler_has_all_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_utils, "dis", dis)
    take_shortcuts.__wrapped__()
    code = test_what_stands_in_for_the_disassembler_has_all_that_it_has.__code__

    assert _utils.dis is not dis
    assert _utils.dis.opname is dis.opname
    assert list(_utils.dis.get_instructions(code)) == list(dis.get_instructions(code))
    assert list(_utils.dis.get_instructions(code, first_line=7)) == list(dis.get_instructions(code, first_line=7))
    assert list(_utils.dis.get_instructions("a + b")) == list(dis.get_instructions("a + b"))


def test_a_function_stays_what_it_is_however_it_is_to_be_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factory, "traceable", None)
    take_shortcuts.__wrapped__()

    assert factory.traceable(len) is len
    assert factory.traceable()(len) is len
    assert factory.traceable(name="length")(len) is len
