"""Work that the agent framework repeats for every agent or call, and whose outcome is the same in the whole process.

Rule: what is done here only saves time. Where a newer version of the framework no longer has what is named here, or
uses it in another way, agents are slower and nothing else.
"""

import contextlib
import dis
import functools
import typing
from collections.abc import Iterator
from types import CodeType, ModuleType
from typing import Any


@functools.cache
def take_shortcuts() -> None:
    """Spare the agents of this process spans that nobody receives, and reading the framework's own code anew."""
    for take in (_leave_out_spans, _evaluate_annotations, _disassemble_once):
        with contextlib.suppress(ImportError, AttributeError):
            take()


def _leave_out_spans() -> None:
    from langchain.agents import factory

    # It wraps every part of an agent and every call of it in a span of the tracing service, also where tracing is off:
    # a twentieth of a run's CPU time. There is no setting for it.
    if hasattr(factory, "traceable"):
        factory.traceable = _leave_untraced


def _leave_untraced(*args: Any, **_options: Any) -> Any:
    """Stand in for the decorator `traceable`, used bare or with options."""
    return args[0] if args and callable(args[0]) else lambda function: function


def _evaluate_annotations() -> None:
    """Evaluate annotations that are written as text, which `typing` would do anew each time somebody reads them."""
    from langchain_core.tools import StructuredTool

    for annotated in (*_list_state_schemas(), StructuredTool._arun):
        # One that names what was imported for type checkers alone stays as it is.
        with contextlib.suppress(NameError, TypeError, AttributeError):
            annotated.__annotations__ = typing.get_type_hints(annotated, include_extras=True)


def _disassemble_once() -> None:
    from langgraph.pregel import _utils

    # For each agent it takes apart the code of all functions of its graph, to see whether they use another graph: a
    # quarter of what a graph costs. The private module has no other way in.
    if hasattr(_utils, "dis"):
        known = ModuleType(dis.__name__, dis.__doc__)
        vars(known).update(vars(dis), get_instructions=_get_instructions)
        _utils.dis = known


def _get_instructions(*args: Any, **options: Any) -> Iterator[dis.Instruction]:
    """Stand in for the function of `dis`."""
    if len(args) == 1 and not options and isinstance(args[0], CodeType):
        return iter(_disassemble(args[0]))
    return dis.get_instructions(*args, **options)


@functools.lru_cache(maxsize=1000)
def _disassemble(code: CodeType) -> tuple[dis.Instruction, ...]:
    return tuple(dis.get_instructions(code))


def _list_state_schemas() -> Iterator[Any]:
    from langchain.agents.middleware import AgentMiddleware

    waiting: list[Any] = [AgentMiddleware]
    seen = set()
    while waiting:
        kind = waiting.pop()
        waiting.extend(kind.__subclasses__())
        schema = getattr(kind, "state_schema", None)
        if isinstance(schema, type) and schema not in seen:
            seen.add(schema)
            yield schema
