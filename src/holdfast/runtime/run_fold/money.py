"""The money of a run: what was spent, by phase and by model, what is reserved, and what its limits are."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.run_fold.calls import CallLog
from holdfast.runtime.run_fold.event_fold import EventFold, EventTable, to_lane, to_number, to_text


@dataclass
class UsageTotal:
    """Money and tokens of some calls."""

    micros: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def add(self, other: "UsageTotal") -> None:
        self.micros += other.micros
        self.calls += other.calls
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens


class OpenReservation(NamedTuple):
    """Money for a call that has no answer, yet or for ever."""

    entry: str
    phase: str
    micros: int
    step: str
    lane_id: str
    response_id: str = ""
    """By which the provider knows the answer that it had begun, if it said so."""


class RunMoney(EventFold):
    """What a run spent, what is reserved for calls without an answer, and its limits. It asks `calls` for models."""

    def __init__(self, calls: CallLog) -> None:
        self._calls = calls
        self.total = UsageTotal()
        self.by_phase: dict[str, UsageTotal] = defaultdict(UsageTotal)
        self.by_model: dict[str, UsageTotal] = defaultdict(UsageTotal)
        self.is_simulated = False  # whether some of it is made up
        self.estimated_micros = 0
        """The part of the total that is our estimate, by the tokens that a program says it has used."""
        self.exhausted = ""
        self.limit_micros: int | None = None
        self.raised_micros: Counter[str] = Counter()
        """By phase the money that was added where the phase's own limit was in the way."""
        self.entry_of_step: dict[str, str] = {}
        """The last entry of money reserved for each step and not settled."""
        self._reserved: dict[str, OpenReservation] = {}

    @property
    def reserved_micros(self) -> int:
        """For calls without an answer: under way, or cut off by a crash and perhaps paid."""
        return sum(each.micros for each in self._reserved.values())

    def find_unanswered(self) -> list[OpenReservation]:
        """Return what is reserved for calls that are over, if nobody drives the run: all but programs that may still
        run by themselves."""
        return [each for each in self._reserved.values() if not self._is_program_in_flight(each.step)]

    def _is_program_in_flight(self, step: str) -> bool:
        call = self._calls.by_key.get(step)
        return call is not None and bool(call.tool) and call.is_in_flight

    @property
    def cost_micros(self) -> int:
        return self.total.micros + self.reserved_micros

    def phase_micros(self, phase: str) -> int:
        """Return what a phase has spent or reserved."""
        spent = self.by_phase[phase].micros if phase in self.by_phase else 0
        return spent + sum(each.micros for each in self._reserved.values() if each.phase == phase)

    def _set_limit(self, event: Event) -> None:
        limit = event.payload.get("budget_micros")
        self.limit_micros = limit if isinstance(limit, int) else None

    def _raise_limit(self, event: Event) -> None:
        phase, micros = event.payload.get("phase"), round(to_number(event.payload.get("amount_micros")))
        if self.limit_micros is not None:
            self.limit_micros += micros
        if isinstance(phase, str):
            self.raised_micros[phase] += micros

    def _reserve(self, event: Event) -> None:
        entry, micros = _to_entry(event)
        step = to_text(event.payload.get("step"))
        self._reserved[entry] = OpenReservation(entry, to_lane(event).phase or "run", micros, step, event.lane_id)
        self.entry_of_step[step] = entry
        self.is_simulated = self.is_simulated or event.payload.get("simulated") is True

    def _settle(self, event: Event) -> None:
        payload, (entry, micros) = event.payload, _to_entry(event)
        step = to_text(payload.get("step"))
        self._reserved.pop(entry, None)
        if self.entry_of_step.get(step) == entry:
            self.entry_of_step.pop(step)
        self.estimated_micros += micros if payload.get("estimated") is True else 0
        call = self._calls.by_key.get(step)
        if call is not None:
            call.micros += micros
        tokens = [round(to_number(payload.get(name))) for name in ("input_tokens", "output_tokens")]
        model = (call.model if call is not None else "") or "unknown model"
        for total in (self.total, self.by_phase[to_lane(event).phase or "run"], self.by_model[model]):
            total.add(UsageTotal(micros, 1, *tokens))

    def _note_response(self, event: Event) -> None:
        entry = self.entry_of_step.get(to_text(event.payload.get("key")), "")
        if entry in self._reserved and (response_id := to_text(event.payload.get("response_id"))):
            self._reserved[entry] = self._reserved[entry]._replace(response_id=response_id)

    def _exhaust(self, event: Event) -> None:
        self.exhausted = to_text(event.payload.get("message"))

    def _resume(self, _event: Event) -> None:
        self.exhausted = ""

    TABLE: ClassVar[EventTable] = {
        EventKind.RUN_CREATED: _set_limit,
        EventKind.RUN_RESUMED: _resume,
        EventKind.AGENT_PROGRESS: _note_response,
        EventKind.BUDGET_RAISED: _raise_limit,
        EventKind.BUDGET_RESERVED: _reserve,
        EventKind.BUDGET_SETTLED: _settle,
        EventKind.BUDGET_EXHAUSTED: _exhaust,
    }


def _to_entry(event: Event) -> tuple[str, int]:
    return to_text(event.payload.get("entry")), round(to_number(event.payload.get("amount_micros")))
