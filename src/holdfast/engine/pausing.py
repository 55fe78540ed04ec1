"""A person's pause: whoever drives the run stops after what is in flight, and it waits until someone resumes it."""

import asyncio
import contextlib

from holdfast.engine.scope import RunScope
from holdfast.enums import RunStatus
from holdfast.runtime.durable import Suspended
from holdfast.runtime.events import EventKind
from holdfast.runtime.journal import Journal

_WAIT_S = 40.0  # longer than a drive waits for the calls it has in flight


class MessagePending(Suspended):
    """A conversation has answered all it was told, and waits for the next message."""


async def pause_for_person(scope: RunScope) -> RunStatus:
    """Write down that the run waits for whoever asked for it; the request in the journal says who that was."""
    asked = scope.log.records.pause_request or {}
    event = scope.log.event(EventKind.RUN_PAUSED, reason="person", by=asked.get("by", ""))
    await scope.log.append(event, rows=[scope.set_run(state=RunStatus.PAUSED, pause_reason="person")], is_last=True)
    return RunStatus.PAUSED


async def wait_until_paused(journal: Journal, run_id: str, after: int) -> None:
    """Wait for the owner to act on a request: the run pauses, or it was over already."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_WAIT_S):
            async for event in journal.follow(run_id, after):
                if event.is_terminal or event.kind == EventKind.RUN_PAUSED:
                    return
