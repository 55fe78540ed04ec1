"""What a run's journal says beyond its steps: how often each phase was tried, what it started from, what was added.

Pure, and read once when a process takes a run over. What happens afterwards is known to whoever makes it happen.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.runtime.durable import idempotency_key
from holdfast.runtime.events import Event, EventKind


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
    left_commands: set[str] = field(default_factory=set)
    """Commands of attempts that a change to the run ended, as the spool knows them: they are to be stopped."""
    reservations: dict[str, str] = field(default_factory=dict)
    """The last entry of money reserved for each step and not settled."""
    accepts_drift: bool = False
    """A person resumed it knowing that what its agents are told has changed."""
    last_tree: str | None = None
    retried_at: int = 0
    started_at: int = 0
    """The number of the last event with which an attempt of a phase started."""
    prepared: int = 0
    _started_from: dict[str, str] = field(default_factory=dict)
    _failed: set[str] = field(default_factory=set)
    _lanes: dict[str, str] = field(default_factory=dict)
    """Of every command without an outcome, as the spool knows it, the lane it belongs to."""

    @classmethod
    def of(cls, events: Iterable[Event]) -> "History":
        history = cls()
        for event in events:
            history._add(event)
        return history

    def _add(self, event: Event) -> None:
        payload, kind = event.payload, event.kind
        tree = find_tree(event)
        self.last_tree = tree or self.last_tree
        is_word = kind in (EventKind.RUN_RESUMED, EventKind.RUN_RESUME_REQUESTED)
        self.accepts_drift |= is_word and payload.get("accept_drift") is True
        phase = payload.get("phase")
        if kind.startswith("phase.") and isinstance(phase, str):
            self._add_phase(event, phase, tree)
        elif kind == EventKind.RUN_RESUMED and payload.get("after") == "failed":
            self.retry(event.seq)
        elif kind == EventKind.WORKSPACE_PREPARED:
            self.prepared += 1
        elif kind == EventKind.BUDGET_RAISED and isinstance(phase, str):
            self.raised_micros[phase] += int(payload.get("amount_micros", 0))
        elif kind == EventKind.BUDGET_RESERVED:
            self.reservations[str(payload.get("step"))] = str(payload.get("entry"))
        elif kind == EventKind.BUDGET_SETTLED:
            self.reservations.pop(str(payload.get("step")), None)
        elif kind in (EventKind.TOOL_STARTED, EventKind.TOOL_RESULT, EventKind.TOOL_ERROR):
            self._add_command(event, str(payload.get("key")))

    def _add_command(self, event: Event, key: str) -> None:
        of_agent = idempotency_key(event.run_id, key)
        if event.kind != EventKind.TOOL_STARTED:
            self.commands.discard(key)
            self.agent_commands.discard(of_agent)
            self._lanes.pop(of_agent, None)
            self._lanes.pop(spool_key(event.run_id, key), None)
        elif event.payload.get("tool") == "command":
            self.commands.add(key)
            self._lanes[spool_key(event.run_id, key)] = event.lane_id
        elif event.payload.get("tool") in ("execute", "agent"):
            self.agent_commands.add(of_agent)
            self._lanes[of_agent] = event.lane_id

    def retry(self, seq: int) -> None:
        """A person has opened the run again, with the event of this number."""
        self.retried_at = seq
        self.restore_to |= {key: self._started_from[key] for key in self._failed if key in self._started_from}
        self._failed.clear()

    def _add_phase(self, event: Event, phase: str, tree: str | None) -> None:
        if event.kind == EventKind.PHASE_STARTED:
            self.started_at = event.seq
            attempt = int(event.payload.get("attempt_no", 1))
            self.last_attempt[phase] = max(attempt, self.last_attempt.get(phase, 0))
            self.restore_to.pop(phase, None)
            self._failed.discard(phase)
            if tree:
                self._started_from[phase] = tree
                self.accepted_tree.setdefault(phase, tree)
        elif event.kind == EventKind.PHASE_FAILED and event.payload.get("is_retried"):
            self.failures[phase] += 1
        elif event.kind == EventKind.PHASE_FAILED:
            self._failed.add(phase)
            self.failures[phase] = 0
        elif event.kind == EventKind.PHASE_COMPLETED or event.payload.get("reason") == "changes":
            self.failures[phase] = 0
        elif event.payload.get("reason") == "run_changed":
            self._leave(phase, event.lane_id)

    def _leave(self, phase: str, lane_id: str) -> None:
        """An attempt was given up because the run was changed: the next one starts from the files that it had."""
        self.failures[phase] = 0
        if phase in self._started_from:
            self.restore_to[phase] = self._started_from[phase]
        self.left_commands |= {key for key, lane in self._lanes.items() if f"{lane}/".startswith(f"{lane_id}/")}


def spool_key(run_id: str, key: str) -> str:
    """Return the name under which the spool knows a command of the template."""
    return f"{run_id}:{key}"


def find_tree(event: Event) -> str | None:
    """The id of the files that an event was recorded with, if it was."""
    result = event.payload.get("result")
    told = result.get("tree") if isinstance(result, dict) else None
    tree = told or event.payload.get("tree")
    return tree if isinstance(tree, str) and tree else None
