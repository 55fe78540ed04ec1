"""From a verb of the engine to its end in front of a person: progress, Ctrl-C, and the questions on the way."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from holdfast.agents.framework import importing_framework
from holdfast.cli.terminal.answer_input import plain_interrupts
from holdfast.cli.terminal.arguments import get_user
from holdfast.cli.terminal.output import plain, say
from holdfast.cli.terminal.progress import give_notice, progress_display
from holdfast.cli.terminal.questions import ask, find_question, notify_of_question, notify_person, send_answer
from holdfast.cli.terminal.run_view import RunView
from holdfast.engine.results import RunResult
from holdfast.engine.workflow_engine import WorkflowEngine
from holdfast.enums import RunStatus
from holdfast.errors import ApprovalAnswered, ApprovalStale, RunNotFound
from holdfast.persistence.db import Database

if TYPE_CHECKING:
    from holdfast.presentation.command_log import CommandCall

Act = Callable[[], Awaitable[RunResult]]


class DriveEnd(NamedTuple):
    """How a run stands when driving it is over, and whether it was Ctrl-C that left it paused."""

    result: RunResult
    is_interrupted: bool = False


async def drive(
    engine: WorkflowEngine, db: Database, run_id: str, act: Act, *, phase_keys: Iterable[str], can_ask: bool
) -> DriveEnd:
    """Start or continue a run with `act`, and show it until it ends or waits.

    With `can_ask` a person answers each approval here, and the run goes on. The run is paused while they think, so
    whatever happens to this process then, the question stays. After a Ctrl-C that paused the run, the next one leaves
    at once until the process ends, unless `restoring_interrupts`.
    """
    keys = list(phase_keys)
    after = db.store.read_heads([run_id]).get(run_id, 0)
    while True:
        showing = progress_display(db.store, run_id, phase_keys=keys, after=after)
        async with showing as view, _stoppable(engine, run_id, view) as pausing:
            with importing_framework():  # while git makes the worktree; the first phase would wait for it
                result = await act()
        after = view.last_seq
        if pausing and result.state is RunStatus.PAUSED:
            _say_what_goes_on(db, run_id)
            return DriveEnd(result, is_interrupted=True)
        if result.state is not RunStatus.PAUSED or result.waiting_for == "person":
            return DriveEnd(result)
        _notify(run_id, result)
        if not can_ask or result.waiting_for not in ("approval", "outcome"):
            return DriveEnd(result)
        try:
            is_settled = await _settle(engine, run_id)
        except KeyboardInterrupt:
            say()
            return DriveEnd(result, is_interrupted=True)
        if not is_settled:
            return DriveEnd(result)
        act = lambda: engine.resume(run_id)  # noqa: E731


def _notify(run_id: str, result: RunResult) -> None:
    if (question := find_question(run_id)) is not None:
        notify_of_question(question)
    else:
        notify_person(f"holdfast: run {run_id[:8]} waits for you ({result.waiting_for})")


async def _settle(engine: WorkflowEngine, run_id: str) -> bool:
    """Ask about what the run waits for and record the answer; false if the person answers later."""
    question = find_question(run_id)
    if question is None:
        return True  # someone else was faster
    with plain_interrupts():
        answer = ask(question)
    if answer is None:
        return False
    try:
        await send_answer(engine, question, answer)
    except ApprovalStale as error:
        say(f"{error.message} It is shown again.")
    except ApprovalAnswered as error:
        say(f"{error.message} Your answer came too late.")
    return True


@contextlib.asynccontextmanager
async def _stoppable(engine: WorkflowEngine, run_id: str, view: RunView) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Let Ctrl-C pause the run durably, and a second one leave at once; the run can be resumed all the same.

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
        give_notice(view, f"Pausing run {run_id[:8]}. Ctrl-C again leaves at once.")
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
        # The second Ctrl-C may come when the run has just paused; as the loop handles it, it cancels what closes files.
        if not pausing:
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, previous)
        for waiting in pausing:
            waiting.cancel()


def _say_what_goes_on(db: Database, run_id: str) -> None:
    """Name what was begun in a run and goes on while it is paused: an agent's program, or a command."""
    running = _find_running(db, run_id)
    if not running:
        return
    what = "The agent goes" if "agent" in {call.type for call in running} else f"Command “{running[0].command}” goes"
    short = run_id[:8]
    say(plain(f"Paused. {what} on, and holdfast resume {short} finds it again; holdfast abort {short} ends it."))


def _find_running(db: Database, run_id: str) -> "list[CommandCall]":
    """Find the commands of a run that have no end in its journal, and that run on this machine."""
    from holdfast.config import load_config
    from holdfast.presentation.command_log import CommandLog
    from holdfast.runtime.step import idempotency_key
    from holdfast.workspace.commands.spool import spool_folder
    from holdfast.workspace.commands.spool_watch import read_spooled

    log, spool_dir = CommandLog(), load_config().data_dir / "spool"
    for event in db.store.list_events(run_id):
        log.add(event)
    spooled = {
        key: read_spooled(spool_folder(spool_dir, idempotency_key(run_id, key)))
        for key, call in log.calls.items()
        if call.ended_at is None
    }
    return [log.calls[key] for key, found in spooled.items() if found is not None and found.is_running]


@contextlib.contextmanager
def restoring_interrupts() -> Iterator[None]:
    """Let Ctrl-C mean after a run what it meant before, in a process that goes on."""
    previous = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, previous)


def leave(run_id: str) -> None:
    """End the process now, as a kill would; the terminal is left as it was found."""
    if sys.stderr.isatty():
        sys.stderr.write("\x1b[?25h\n")
    say(f"Left. Go on: holdfast resume {run_id[:8]}")
    os._exit(130)
