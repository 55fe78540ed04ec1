"""One agent at work in one lane: built for its persona, asked once, and never longer than its phase may take."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.agents.framework import import_framework, is_framework_imported
from holdfast.concurrency import Deadline, DeadlinePassed
from holdfast.engine.phase.budget import PhaseBudget
from holdfast.engine.scope import RunScope
from holdfast.errors import PhaseTimeout, RowRefused, StoreError
from holdfast.runtime.step import Stopped
from holdfast.workflow import Phase

MAX_TEXT_CHARS = 4000
More = Callable[[Any], Sequence[Any]]
"""Makes middleware that the agent gets behind the journal's, from the journal's."""


@dataclass(frozen=True)
class AgentTurn:
    """What an agent is to do once: answer these messages, for an attempt of a phase."""

    phase: Phase
    attempt: int
    name: str
    messages: Sequence[Any]
    more: More = lambda _journal: ()
    drain_s: float | None = None
    """How long its end waits for what is in flight, if not as long as usual."""


async def invoke_agent(scope: RunScope, turn: AgentTurn) -> Any:
    """Let the agent of a phase answer these messages; its calls are steps of the lane `phase/attempt/turn`.

    Raises what it raises, `PhaseTimeout`, and `BudgetPause` where a limit does not allow the next call. What is in
    flight when it ends is waited for.
    """
    if not is_framework_imported():
        await asyncio.to_thread(import_framework)  # a second or more, in which other runs and requests go on
    from holdfast import engine  # build_agent is looked up at call time, so that a test can replace it
    from holdfast.engine.phase.middleware import make_middleware

    phase, lane_id = turn.phase, f"{turn.phase.key}/{turn.attempt}"
    money = PhaseBudget(scope, phase, turn.attempt, lane_id)
    middleware = make_middleware(scope, phase, f"{lane_id}/{turn.name}", money, attempt=turn.attempt)
    agent = engine.build_agent(
        scope.persona_of(phase).with_settings(phase.model_settings),
        scope.config,
        root_dir=scope.place.root,
        middleware=[*middleware.for_agent, *turn.more(middleware.journal)],
    )
    try:
        # In a task of its own: the framework can lose a cancellation, and then nobody waits for it any more.
        return await Deadline(phase.timeout_seconds).run(agent.ainvoke({"messages": list(turn.messages)}))
    except RowRefused as error:
        raise await money.to_pause() from error
    except StoreError as error:  # no failure of the agent: whoever goes on finds what was recorded
        raise Stopped(error) from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError("the agent cancelled itself") from error
    except DeadlinePassed as error:
        raise PhaseTimeout(
            f"Phase {phase.key!r} took longer than {phase.timeout_seconds:g} s.",
            hint="Raise its timeout_seconds or make the phase smaller, then retry the run.",
        ) from error
    finally:
        await middleware.drain(turn.drain_s)


def last_text(result: Any, *, limit: int | None = MAX_TEXT_CHARS) -> str:
    """Return the end of what the agent said, for readers; nothing of a result without messages."""
    messages = result.get("messages") if isinstance(result, dict) else None
    if not messages:
        return ""
    content = getattr(messages[-1], "content", "")
    if isinstance(content, list) and isinstance(text := getattr(messages[-1], "text", None), str):
        content = text  # what it said, without its thoughts
    text = content if isinstance(content, str) else str(content)
    return text.encode(errors="replace").decode()[:limit]
