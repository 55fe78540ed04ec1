"""One look at one run of a flow: claim it, run it as far as it goes now, give it back."""

import contextlib
import logging
from collections.abc import Awaitable, Callable

from holdfast.enums import RunStatus
from holdfast.errors import HoldfastError, RunCancelled, RunPaused
from holdfast.flows.execution import FlowExecution
from holdfast.flows.format_check import describe_newer, to_newer_error
from holdfast.flows.service.flow_look import BegunFlow
from holdfast.flows.service.flow_registry import FlowDefinition
from holdfast.flows.sync_context import call_flow
from holdfast.flows.typed_values.call_record import restore_call
from holdfast.flows.typed_values.declared_types import result_codec
from holdfast.runtime import flow_rows
from holdfast.runtime.checkpoint.base import Claim
from holdfast.runtime.events import EventKind, create_event
from holdfast.runtime.journal import Journal
from holdfast.runtime.outcomes.crashes import RunCrashing, find_crash_loop
from holdfast.runtime.records import Records
from holdfast.runtime.step import Drained, Parked

_log = logging.getLogger("holdfast.flows")


class FlowDrive:
    """Drives a run that is due, or whose owner has died."""

    def __init__(
        self,
        journal: Journal,
        definition: FlowDefinition,
        run_id: str,
        *,
        park_after_s: float,
        begin: Callable[[], Awaitable[BegunFlow | None]] | None = None,
    ) -> None:
        """Drive a run; one that nobody has begun is claimed and begun by `begin`, unless that says it is not so."""
        self._journal = journal
        self._definition = definition
        self._run_id = run_id
        self._begin = begin
        self._park_after_s = park_after_s
        self._execution: FlowExecution | None = None
        self.on_end: Callable[[], None] = lambda: None
        """Called when the flow's code is over, and only that is to be recorded."""

    @property
    def flow(self) -> str:
        return self._definition.name

    async def run(self) -> None:
        """Run it until it ends, pauses, parks or is given up.

        Raises `RunBusy` if a living owner has it, and whatever keeps the run from being driven; not what the flow
        itself raises, which the journal has.
        """
        begun = None if self._begin is None else await self._begin()
        claim = await self._journal.claim(self._run_id) if begun is None else begun.claim
        try:
            if begun is not None:
                await self._execute(claim, Records(begun.events), is_begun=True)
            elif (records := await self._read(claim)) is not None:
                await self._execute(claim, records)
        finally:
            await self._journal.release(claim)

    async def _read(self, claim: Claim) -> Records | None:
        """Read what is recorded of a claimed run; `None` if there is nothing to be driven."""
        row = await self._journal.query(lambda store: flow_rows.read_row(store, self._run_id))
        # Somebody was faster: what made it due has been dealt with between our look and our claim.
        if row is None or not (row.is_due or row.is_driven):
            return None
        if describe_newer(row) is not None:
            raise to_newer_error(row)
        if (crashing := find_crash_loop(claim)) is not None:
            await self._pause(claim, crashing)
            return None
        events = await self._journal.read(self._run_id)
        records = Records(events)
        is_over = isinstance(records.status, RunStatus) and records.status.is_terminal
        if is_over and not records.is_retry_requested:
            # Written by a program that keeps no rows.
            await self._journal.append(
                self._run_id, [], claim=claim, rows=[flow_rows.ended(self._run_id, RunStatus(records.status))]
            )
            return None
        if (crashing := find_crash_loop(claim, events)) is not None:
            await self._pause(claim, crashing)
            return None
        return records

    async def _pause(self, claim: Claim, crashing: RunCrashing) -> None:
        name, why = crashing.reason.value, str(crashing)
        event = create_event(self._run_id, EventKind.RUN_PAUSED, reason=name, waiting=[], message=why)
        await self._journal.append(self._run_id, [event], claim=claim, rows=[flow_rows.paused(self._run_id, name)])

    async def _execute(self, claim: Claim, records: Records, *, is_begun: bool = False) -> None:
        function, created = self._definition.function, records.created or {}
        args, kwargs = restore_call(function, created)
        self._execution = FlowExecution(
            *(self._journal, claim, records, self.flow, created),
            park_after_s=self._park_after_s,
            is_begun=is_begun,
        )
        self._execution.on_end = self.on_end
        try:
            await self._execution.run(lambda ctx: call_flow(function, ctx, *args, **kwargs), result_codec(function))
        except (RunPaused, RunCancelled, Parked):
            pass
        except Drained:
            await self.give_up(claim)
        except Exception as error:
            if not self._execution.is_recorded:
                raise
            # Nobody may ever ask for the result: a program that starts a flow and forgets it is told here.
            _log.warning("Run %s of flow %s failed", self._run_id, self.flow, exc_info=error)
        except BaseException:  # the task is cancelled: the process is to end
            await self.give_up(claim)
            raise

    def drain(self) -> bool:
        """Begin no more calls; return true if one is in flight, whose end is worth waiting for."""
        return self._execution is not None and self._execution.drain()

    async def give_up(self, claim: Claim) -> None:
        """Let another process see at once that it may go on with the run."""
        with contextlib.suppress(HoldfastError):  # it is found as interrupted then
            await self._journal.append(self._run_id, [], claim=claim, rows=[flow_rows.abandoned(self._run_id)])
