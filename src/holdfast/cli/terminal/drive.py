"""From a verb of the engine to its end in front of a person: progress, Ctrl-C, and the questions on the way."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

from holdfast.agents.framework import importing_framework
from holdfast.cli.terminal.answer_input import plain_interrupts
from holdfast.cli.terminal.arguments import get_user
from holdfast.cli.terminal.output import say
from holdfast.cli.terminal.progress import give_notice, progress_display
from holdfast.cli.terminal.questions import ask, find_question, notify_person
from holdfast.cli.terminal.run_view import RunView
from holdfast.engine.results import RunResult
from holdfast.engine.workflow_engine import WorkflowEngine
from holdfast.enums import RunStatus
from holdfast.errors import ApprovalAnswered, ApprovalStale, RunNotFound
from holdfast.persistence.db import Database

Act = Callable[[], Awaitable[RunResult]]


async def drive(
    engine: WorkflowEngine,
    db: Database,
    run_id: str,
    act: Act,
    *,
    phase_keys: Iterable[str],
    can_ask: bool,
    after: int = 0,
    interrupted: asyncio.Event | None = None,
) -> RunResult:
    """Do it and show it. With `can_ask` a person answers each approval here, and the run goes on.

    The run is paused while they think, so whatever happens to this process then, the question stays. `interrupted` is
    set if it was Ctrl-C that left the run paused.
    """
    interrupted = interrupted or asyncio.Event()
    keys = list(phase_keys)
    while True:
        showing = progress_display(db.store, run_id, phase_keys=keys, after=after)
        async with showing as view, _stoppable(engine, run_id, view) as pausing:
            with importing_framework():  # while git makes the worktree; the first phase would wait for it
                result = await act()
        after = view.last_seq
        if pausing and result.state is RunStatus.PAUSED:
            interrupted.set()
            return result
        if result.state is not RunStatus.PAUSED or result.waiting_for == "person":
            return result
        notify_person(f"holdfast: run {run_id[:8]} waits for you ({result.waiting_for})")
        if not can_ask or result.waiting_for not in ("approval", "outcome"):
            return result
        try:
            is_settled = await _settle(engine, run_id)
        except KeyboardInterrupt:
            say()
            interrupted.set()
            return result
        if not is_settled:
            return result
        act = lambda: engine.resume(run_id)  # noqa: E731


async def _settle(engine: WorkflowEngine, run_id: str) -> bool:
    """Ask about what the run waits for and record the answer; false if the person answers later."""
    question = find_question(run_id)
    if question is None:
        return True  # someone else was faster
    with plain_interrupts():
        answer = ask(question)
    if answer is None:
        return False
    outcome: dict[str, Any] = {} if answer.result is None else {"result": answer.result}
    try:
        await engine.decide(
            run_id,
            question["approval_id"],
            answer.action,
            comment=answer.comment,
            by=get_user(),
            digest=question["digest"],
            args=answer.args,
            **outcome,
        )
    except ApprovalStale as error:
        say(f"{error.message} It is shown again.")
    except ApprovalAnswered as error:
        say(f"{error.message} Your answer came too late.")
    return True


@contextlib.asynccontextmanager
async def _stoppable(engine: WorkflowEngine, run_id: str, view: RunView) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Ctrl-C once pauses the run durably; twice leaves at once, and the run can be resumed all the same.

    What it yields holds something once Ctrl-C was pressed. Before there is a run, it raises `KeyboardInterrupt`.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    pausing: list[asyncio.Task[None]] = []

    async def pause() -> None:
        try:
            await engine.pause(run_id, by=get_user())
        except RunNotFound:
            if task is not None:
                task.cancel()  # there is no run yet that could be paused

    def on_interrupt() -> None:
        if pausing:
            leave(run_id)
        give_notice(
            view, f"Pausing run {run_id[:8]}; what is in flight is recorded first. Ctrl-C again leaves at once."
        )
        pausing.append(loop.create_task(pause()))

    previous = signal.getsignal(signal.SIGINT)
    loop.add_signal_handler(signal.SIGINT, on_interrupt)
    try:
        yield pausing
    except asyncio.CancelledError:
        if pausing:
            raise KeyboardInterrupt from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, previous)
        for waiting in pausing:
            waiting.cancel()


def leave(run_id: str) -> None:
    """End the process now, as a kill would; the terminal is left as it was found."""
    if sys.stderr.isatty():
        sys.stderr.write("\x1b[?25h\n")
    say(f"Left. Go on: holdfast resume {run_id[:8]}")
    os._exit(130)
