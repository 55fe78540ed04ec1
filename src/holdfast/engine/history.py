"""What a run's journal says beyond its steps: how often each phase was tried, what it started from, what was added.

Pure, and read once when a process takes a run over. What happens afterwards is known to whoever makes it happen, and
is written into the same history by them.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from holdfast.enums import RunStatus
from holdfast.images import ImageLabel, read_labels, unite_labels
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.run_fold.calls import CallLog, CallSpan
from holdfast.runtime.run_fold.event_fold import EventFold, EventTable, find_tree, to_number, to_text
from holdfast.runtime.run_fold.money import OpenReservation, RunMoney
from holdfast.runtime.step import idempotency_key

_AGENT_COMMANDS = ("execute", "agent")
_TEMPLATE_COMMAND = "command"


@dataclass
class History:
    last_attempt: dict[str, int] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    """How often in a row each phase failed and was tried again by itself."""
    restore_to: dict[str, str] = field(default_factory=dict)
    """The files from which a phase starts again that failed and was then retried by a person."""
    accepted_tree: dict[str, str] = field(default_factory=dict)
    """The files from which a phase's first attempt started: all before them is accepted, nothing of the phase is."""
    raised_micros: Counter[str] = field(default_factory=Counter)
    """Money that was added where a phase's own limit was in the way."""
    commands: set[str] = field(default_factory=set)
    """Keys of the template's commands that were started and have no outcome."""
    agent_commands: set[str] = field(default_factory=set)
    """The same of the agents' commands, as the spool knows them."""
    unfenced: set[str] = field(default_factory=set)
    """Commands that run here, that another machine would run again by itself, and that nothing contains."""
    left_commands: set[str] = field(default_factory=set)
    """Commands of attempts that a change to the run ended, as the spool knows them: they are to be stopped."""
    reservations: dict[str, str] = field(default_factory=dict)
    """The last entry of money reserved for each step and not settled."""
    unanswered: list[OpenReservation] = field(default_factory=list)
    """Money of calls that ended without an answer before this process took the run over."""
    accepts_drift: bool = False
    """A person resumed it knowing that what its agents are told has changed."""
    unsandboxed_by: str | None = None
    """Who chose that the run's commands run without a sandbox, if someone did."""
    images: tuple[ImageLabel, ...] = ()
    """What the requirements show."""
    last_tree: str | None = None
    not_carried: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By phase the biggest files of a result that was recorded without its files, which are too big to travel: they are
    in the place of the run alone. Nothing once files were recorded after it."""
    retried_at: int = 0
    started_at: int = 0
    """The number of the last event with which an attempt of a phase started."""
    prepared: int = 0
    place: str = ""
    """Whose worktree the run works in; nothing in a journal of an earlier version."""
    left_out: tuple[dict[str, str], ...] = ()
    """What the last saved files do not hold, and why."""
    started_from: dict[str, str] = field(default_factory=dict)
    """The files from which the last attempt of each phase started."""
    open_phases: set[str] = field(default_factory=set)
    """The phases whose last attempt has not ended."""
    failed: set[str] = field(default_factory=set)
    """The phases that failed for good since a person last retried the run."""

    @property
    def needs_files_of_place(self) -> bool:
        """Whether a phase goes on that builds on files in the place of the run alone, and starts from no others."""
        return any(not self._starts_from_others(phase) for phase in self.not_carried)

    @property
    def files_of_place(self) -> tuple[str, ...]:
        """The biggest of these files."""
        needed = (paths for phase, paths in self.not_carried.items() if not self._starts_from_others(phase))
        return tuple(path for paths in needed for path in paths)

    def _starts_from_others(self, phase: str) -> bool:
        return phase in self.restore_to or phase in self.failed

    @classmethod
    def of(cls, events: Iterable[Event]) -> "History":
        """Read the history of a run from its whole journal."""
        fold = _HistoryFold(cls())
        for event in events:
            fold.add(event)
        return fold.finish()

    def retry(self, seq: int) -> None:
        """Note that a person has opened the run again, with the event of this number.

        What failed starts from the files it had: its attempt may have left them half changed. A phase that the
        engine tries again by itself goes on with the files as they are.
        """
        self.retried_at = seq
        self.restore_to |= {key: self.started_from[key] for key in self.failed if key in self.started_from}
        self.failed.clear()


class _HistoryFold(EventFold):
    """Fills a history from events. Calls and money are folded as for every reader; what is here is the engine's own."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._calls = CallLog()
        self._money = RunMoney(self._calls)
        self._run_id = ""

    def add(self, event: Event) -> None:
        self._run_id = event.run_id
        self._calls.add(event)
        self._money.add(event)
        if tree := find_tree(event):
            self._history.last_tree, self._history.not_carried = tree, {}
        elif isinstance(result := event.payload.get("result"), dict) and result.get("not_carried"):
            self._history.not_carried[event.lane_id.partition("/")[0]] = tuple(result["not_carried"])
        super().add(event)

    def finish(self) -> History:
        """Return the history, with what is still under way after the last event."""
        history = self._history
        # What is in flight after the last event may still be running: a command outlives the engine that started it.
        # Commands of the template are found by their own key, those of agents by the key that the spool was handed.
        in_flight = [call for call in self._calls.by_key.values() if call.is_in_flight]
        history.commands = {call.key for call in in_flight if call.tool == _TEMPLATE_COMMAND}
        history.agent_commands = {
            idempotency_key(self._run_id, call.key) for call in in_flight if call.tool in _AGENT_COMMANDS
        }
        history.reservations = self._money.entry_of_step
        history.unanswered = self._money.find_unanswered()
        history.raised_micros = self._money.raised_micros
        return history

    def _choose_sandbox(self, event: Event) -> None:
        if event.payload.get("unsandboxed") is True:
            self._history.unsandboxed_by = to_text(event.payload.get("by") or event.payload.get("started_by"))

    def _change(self, event: Event) -> None:
        self._choose_sandbox(event)
        self._history.images = unite_labels([*self._history.images, *find_images([event])])

    def _request_resume(self, event: Event) -> None:
        self._history.accepts_drift |= event.payload.get("accept_drift") is True

    def _resume(self, event: Event) -> None:
        self._request_resume(event)
        if event.payload.get("after") == RunStatus.FAILED:
            self._history.retry(event.seq)

    def _prepare(self, event: Event) -> None:
        self._history.prepared += 1
        result = event.payload.get("result")
        self._history.place = to_text(result.get("place") if isinstance(result, dict) else "") or self._history.place

    def _move(self, event: Event) -> None:
        self._history.place = to_text(event.payload.get("place"))

    def _save(self, event: Event) -> None:
        result = event.payload.get("result")
        if isinstance(result, dict):
            self._history.left_out = tuple(result.get("left_out") or ())

    def _start_phase(self, event: Event) -> None:
        history, phase = self._history, _to_phase(event)
        attempt = round(to_number(event.payload.get("attempt_no"))) or 1
        history.started_at = event.seq
        history.last_attempt[phase] = max(attempt, history.last_attempt.get(phase, 0))
        # The new attempt has its files; what it was to start from is used up, and so is the failure before it.
        history.restore_to.pop(phase, None)
        history.failed.discard(phase)
        history.open_phases.add(phase)
        if tree := find_tree(event):
            history.started_from[phase] = tree
            # Only the first attempt starts from accepted files; a later one may find what those before it left.
            history.accepted_tree.setdefault(phase, tree)

    def _fail_phase(self, event: Event) -> None:
        phase = _to_phase(event)
        self._history.open_phases.discard(phase)
        if event.payload.get("is_retried"):  # by the engine itself; a person has no part in it
            self._history.failures[phase] += 1
        else:
            # It failed for good. Its count of failures in a row begins anew, since the next attempt is a person's
            # decision.
            self._history.failed.add(phase)
            self._history.failures[phase] = 0

    def _complete_phase(self, event: Event) -> None:
        phase = _to_phase(event)
        self._history.open_phases.discard(phase)
        self._history.failures[phase] = 0

    def _reopen_phase(self, event: Event) -> None:
        history, phase = self._history, _to_phase(event)
        history.open_phases.discard(phase)
        reason = event.payload.get("reason")
        if reason in ("changes", "run_changed", "files_restored"):
            history.failures[phase] = 0
        if reason != "run_changed":
            return
        # An attempt was given up because the run was changed: the next one starts from the files that it had, and
        # what it had running must end. This is decided here and not at the end: its lane may be used again.
        if phase in history.started_from:
            history.restore_to[phase] = history.started_from[phase]
        for call in self._calls.by_key.values():
            if call.is_in_flight and f"{call.lane_id}/".startswith(f"{event.lane_id}/"):
                history.left_commands |= self._find_spool_key(call)

    def _find_spool_key(self, call: CallSpan) -> set[str]:
        if call.tool == _TEMPLATE_COMMAND:
            return {spool_key(self._run_id, call.key)}
        return {idempotency_key(self._run_id, call.key)} if call.tool in _AGENT_COMMANDS else set()

    TABLE: ClassVar[EventTable] = {
        EventKind.RUN_CREATED: _change,
        EventKind.RUN_CHANGED: _change,
        EventKind.RUN_RESUME_REQUESTED: _request_resume,
        EventKind.RUN_RESUMED: _resume,
        EventKind.WORKSPACE_PREPARED: _prepare,
        EventKind.WORKSPACE_MOVED: _move,
        EventKind.CHECKPOINT_SAVED: _save,
        EventKind.PHASE_STARTED: _start_phase,
        EventKind.PHASE_FAILED: _fail_phase,
        EventKind.PHASE_COMPLETED: _complete_phase,
        EventKind.PHASE_REOPENED: _reopen_phase,
    }


def find_images(events: Iterable[Event]) -> tuple[ImageLabel, ...]:
    """Find the images that go with a run's requirements: those it was made with, and those that a change added."""
    kinds = (EventKind.RUN_CREATED, EventKind.RUN_CHANGED)
    payloads = [event.payload for event in events if event.kind in kinds]
    return unite_labels(label for payload in payloads for label in read_labels(payload.get("images")))


def _to_phase(event: Event) -> str:
    return to_text(event.payload.get("phase"))


def spool_key(run_id: str, key: str) -> str:
    """Return the name under which the spool knows a command of the template."""
    return f"{run_id}:{key}"
