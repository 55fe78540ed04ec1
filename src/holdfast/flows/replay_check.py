"""Before a deploy: would the open runs of a store go on with the code of now? Replays them without doing anything.

Rule: nothing is called and nothing is written. A replay ends at the first operation that the journal does not have.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from holdfast.enums import RunStatus
from holdfast.errors import Nondeterminism
from holdfast.flows.context import Context
from holdfast.flows.run import FlowCall
from holdfast.flows.sync_context import call_flow
from holdfast.flows.typed_values.call_record import restore_call
from holdfast.runtime.checkpoint.base import Claim, Prepared, Statement
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.journal import Journal
from holdfast.runtime.outcomes.failures import rebuild_error
from holdfast.runtime.records import Records, StepState
from holdfast.runtime.run_log import RunLog
from holdfast.runtime.step import Interrupted, Step, Stopped
from holdfast.runtime.stores import StoreLike, open_journal

_LIMIT_S = 30.0  # of one replay, in which nothing is waited for
_CLOSED = (RunStatus.COMPLETED, RunStatus.CANCELLED)


@dataclass(frozen=True)
class RunCheck:
    """What would become of one open run: it `fits`, it `breaks`, or it is `unclear` for the reason in `message`."""

    run_id: str
    flow: str
    status: str
    outcome: Literal["fits", "breaks", "unclear"]
    message: str = ""
    recorded: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    file: str = ""
    line: int = 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class ReplayEnd(Interrupted):
    """A replay has come to something that is not recorded, which a real one would do now."""


class ReplayLog(RunLog):
    """A run's log that ends the replay instead of doing or writing anything."""

    async def append(
        self,
        *events: Event | Prepared,
        rows: Sequence[Statement] = (),
        is_last: bool = False,
        gives_up: bool = False,
    ) -> None:
        # A run that came past a new marker takes the old way, and the replay goes on there.
        is_old_way = [isinstance(one, Event) and one.payload.get("result") is False for one in events]
        if not (all(is_old_way) and all(_kind(one) == EventKind.VERSION_MARKED for one in events)):
            raise ReplayEnd

    def defer(self, event: Event) -> None:
        """Write no note."""

    def begin_call(self) -> None:
        raise ReplayEnd

    async def attempt(self, step: Step, call: Callable[..., Any], attempt: int = 1, args: tuple[Any, ...] = ()) -> Any:
        raise ReplayEnd

    async def step(self, step: Step, call: Callable[[], Any]) -> Any:
        record = self.find("step", step.key, step.fingerprint)
        if record is not None and record.state is StepState.COMPLETED:
            return self._replay(step, record)
        if record is not None and record.state is StepState.FAILED:
            raise rebuild_error(step.key, record.error)
        raise ReplayEnd


def _kind(event: Event | Prepared) -> str:
    return str(event.kind)


async def check_flow(
    flow: Callable[..., Coroutine[Any, Any, Any]], *, store: StoreLike = "holdfast.db"
) -> list[RunCheck]:
    """Replay every open run of a flow in a store against the code of now: which would break, and where.

    Open are all runs but the completed and the cancelled ones. Steps, children and notes are neither called nor
    written; plain code between them is run.
    """
    checks: list[RunCheck] = []
    name = FlowCall(flow, (), {}, run_id="").name
    async with open_journal(store) as journal:
        for run_id in await asyncio.to_thread(journal.store.list_runs):
            records = Records(await journal.read(run_id))
            created = records.created or {}
            if created.get("flow") == name and records.status not in _CLOSED:
                checks.append(await _check_run(journal, run_id, records, FlowCall(flow, (), {}, run_id=run_id)))
    return checks


async def _check_run(journal: Journal, run_id: str, records: Records, call: FlowCall) -> RunCheck:
    facts: Mapping[str, Any] = {"run_id": run_id, "flow": call.name, "status": str(records.status)}
    try:
        args, kwargs = restore_call(call.flow, records.created or {})
    except Nondeterminism as error:
        return RunCheck(**facts, outcome="unclear", message=error.message)
    log = ReplayLog(journal, Claim(run_id, 0, records.last_seq), records)
    context = Context(log, journal, park_after_s=0.0)
    try:
        async with asyncio.timeout(_LIMIT_S):
            await context.run(lambda: call_flow(call.flow, context, *args, **kwargs))
    except TimeoutError:
        return RunCheck(**facts, outcome="unclear", message=f"Its code has not come to an end within {_LIMIT_S:g} s.")
    except Stopped as stopped:
        if isinstance(stopped.error, Nondeterminism):
            return _broken(facts, stopped.error)
        return RunCheck(**facts, outcome="unclear", message=str(stopped.error))
    except Interrupted:
        pass  # it came to what is not recorded
    except Exception as error:
        if records.status is not RunStatus.FAILED:
            message = f"Its code raises {type(error).__name__}: {error}"
            return RunCheck(**facts, outcome="unclear", message=message)
    return RunCheck(**facts, outcome="fits")


def _broken(facts: Mapping[str, Any], error: Nondeterminism) -> RunCheck:
    found = error.facts
    return RunCheck(
        **facts,
        outcome="breaks",
        message=error.message,
        recorded=tuple(found.get("recorded_around", ())),
        code=tuple(found.get("code_around", ())),
        file=found.get("file", ""),
        line=found.get("line", 0),
    )
