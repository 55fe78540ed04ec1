"""One look at one run of a flow: claim it, run it as far as it goes now, give it back."""

import contextlib

from holdfast.enums import RunStatus
from holdfast.errors import HoldfastError, RunCancelled, RunPaused
from holdfast.flows.execution import FlowExecution
from holdfast.flows.service.flow_registry import FlowDefinition
from holdfast.flows.sync_context import call_flow
from holdfast.flows.typed_values.call_record import restore_call
from holdfast.flows.typed_values.declared_types import result_codec
from holdfast.runtime import flow_rows
from holdfast.runtime.checkpoint.base import Claim
from holdfast.runtime.events import EventKind, create_event
from holdfast.runtime.journal import Journal
from holdfast.runtime.outcomes.crashes import find_crash_loop
from holdfast.runtime.records import Records
from holdfast.runtime.step import Drained, Parked


class FlowDrive:
    """Drives a run that is due, or whose owner has died."""

    def __init__(self, journal: Journal, definition: FlowDefinition, run_id: str, *, park_after_s: float) -> None:
        self._journal = journal
        self._definition = definition
        self._run_id = run_id
        self._park_after_s = park_after_s
        self._execution: FlowExecution | None = None

    @property
    def flow(self) -> str:
        return self._definition.name

    async def run(self) -> None:
        """Run it until it ends, pauses, parks or is given up.

        Raises `RunBusy` if a living owner has it, and whatever keeps the run from being driven; not what the flow
        itself raises, which the journal has.
        """
        claim = await self._journal.claim(self._run_id)
        try:
            await self._run(claim)
        finally:
            await self._journal.release(claim)

    async def _run(self, claim: Claim) -> None:
        row = await self._journal.query(lambda store: flow_rows.read_row(store, self._run_id))
        # Somebody was faster: what made it due has been dealt with between our look and our claim.
        if row is None or not (row.is_due or row.is_driven):
            return
        events = await self._journal.read(self._run_id)
        records = Records(events)
        if isinstance(records.status, RunStatus) and records.status.is_terminal:
            # Written by a program that keeps no rows.
            await self._journal.append(
                self._run_id, [], claim=claim, rows=[flow_rows.ended(self._run_id, records.status)]
            )
            return
        if (crashing := find_crash_loop(claim, events)) is not None:
            name, why = crashing.reason.value, str(crashing)
            event = create_event(self._run_id, EventKind.RUN_PAUSED, reason=name, waiting=[], message=why)
            await self._journal.append(self._run_id, [event], claim=claim, rows=[flow_rows.paused(self._run_id, name)])
            return
        function, created = self._definition.function, records.created or {}
        args, kwargs = restore_call(function, created)
        self._execution = FlowExecution(
            self._journal, claim, records, self.flow, created, park_after_s=self._park_after_s
        )
        try:
            await self._execution.run(lambda ctx: call_flow(function, ctx, *args, **kwargs), result_codec(function))
        except (RunPaused, RunCancelled, Parked):
            pass
        except Drained:
            await self.give_up(claim)
        except Exception:
            if not self._execution.is_recorded:
                raise
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
