"""LangGraph: a graph of one node that repeats itself, compiled with its savers as its documentation shows.

`sync` keeps every step before the next one starts, which is what holdfast promises; `async`, its default, lets the
steps run ahead of what is kept.
"""

import asyncio
import contextlib
import operator
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal, TypedDict

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from benchmarks.measure import MESSAGE, RUNS, TEXT, Place, Reading, payload, reading, stored_bytes

Durability = Literal["sync", "async"]


class State(TypedDict):
    n: int
    text: str
    steps: int


def _next(state: State) -> str:
    return END if state["n"] >= state["steps"] else "step"


def _step(state: State) -> dict[str, Any]:
    return payload(state["n"] + 1)


async def _async_step(state: State) -> dict[str, Any]:
    return payload(state["n"] + 1)


def _graph(saver: BaseCheckpointSaver[Any], node: Any) -> CompiledStateGraph[Any, Any, Any, Any]:
    builder = StateGraph(State)
    builder.add_node("step", node)
    builder.add_edge(START, "step")
    builder.add_conditional_edges("step", _next, ["step", END])
    return builder.compile(checkpointer=saver)


def _start(steps: int) -> State:
    return {"n": 0, "text": TEXT, "steps": steps}


def _config(thread: str, steps: int) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread}, "recursion_limit": steps + 10}


def one_run_sqlite(place: Place) -> Reading:
    with SqliteSaver.from_conn_string(place.db) as saver:
        graph = _graph(saver, _step)
        graph.invoke(_start(20), _config("warm-up", 20), durability="sync")
        with reading() as found:
            graph.invoke(_start(place.steps), _config("run", place.steps), durability="sync")
    return found


@contextlib.asynccontextmanager
async def _sqlite(place: Place) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async with AsyncSqliteSaver.from_conn_string(place.db) as saver:
        yield saver


@contextlib.asynccontextmanager
async def _postgres(place: Place) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    """With a pool, which is its faster way."""
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool

    settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(place.url, min_size=8, max_size=8, kwargs=settings, open=False) as pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        yield saver


async def _many_runs(place: Place, opened: Any, durability: Durability) -> Reading:
    steps = place.steps // RUNS
    async with opened(place) as saver:
        graph = _graph(saver, _async_step)

        async def go(thread: str, count: int) -> None:
            await graph.ainvoke(_start(count), _config(thread, count), durability=durability)

        await asyncio.gather(*(go(f"warm-up-{number}", 1) for number in range(8)))
        with reading() as found:
            await asyncio.gather(*(go(f"run-{number}", steps) for number in range(RUNS)))
    return found


def many_runs_sqlite(place: Place) -> Reading:
    return asyncio.run(_many_runs(place, _sqlite, "sync"))


def many_runs_sqlite_async(place: Place) -> Reading:
    return asyncio.run(_many_runs(place, _sqlite, "async"))


def many_runs_postgres(place: Place) -> Reading:
    return asyncio.run(_many_runs(place, _postgres, "sync"))


def many_runs_postgres_async(place: Place) -> Reading:
    return asyncio.run(_many_runs(place, _postgres, "async"))


class Conversation(TypedDict):
    messages: Annotated[list[dict[str, str]], operator.add]
    steps: int


def messages(place: Place) -> Reading:
    """A conversation kept in the state, as agents do."""

    def speak(state: Conversation) -> dict[str, Any]:
        return {"messages": [{"role": "assistant", "content": f"{len(state['messages'])} {MESSAGE}"}]}

    def following(state: Conversation) -> str:
        return END if len(state["messages"]) >= state["steps"] else "speak"

    builder = StateGraph(Conversation)
    builder.add_node("speak", speak)
    builder.add_edge(START, "speak")
    builder.add_conditional_edges("speak", following, ["speak", END])
    with SqliteSaver.from_conn_string(place.db) as saver, reading() as found:
        graph = builder.compile(checkpointer=saver)
        graph.invoke({"messages": [], "steps": place.steps}, _config("run", place.steps), durability="sync")
    found.extra["bytes"] = stored_bytes(place)
    return found
