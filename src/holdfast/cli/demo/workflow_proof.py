"""What the demo's journal and rows say, and the claims that follow. Nothing here comes from the processes' output."""

import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.cli.commands.runs.show import read_run
from holdfast.cli.demo.workflow_project import SuiteResult
from holdfast.cli.terminal.store import read_events
from holdfast.persistence.raw_sql import sum_costs
from holdfast.runtime.events import Event, EventKind

_CALLS = (EventKind.MODEL_RESPONSE, EventKind.TOOL_RESULT)
_BEGINNINGS = {EventKind.MODEL_REQUEST: EventKind.MODEL_RESPONSE, EventKind.TOOL_STARTED: EventKind.TOOL_RESULT}


@dataclass(frozen=True)
class Share:
    """What one process did in one phase: calls made, and calls it took from the journal."""

    made: int = 0
    replayed: int = 0
    is_skipped: bool = False


@dataclass(frozen=True)
class Proof:
    pids: tuple[int, ...]
    phases: tuple[str, ...]
    shares: dict[tuple[int, str], Share]
    events: tuple[Event, ...]
    state: str
    report: str
    artifacts: tuple[str, ...]
    spent_micros: int
    settled: int
    unanswered_micros: int
    worktree: Path

    @property
    def cut_off(self) -> list[str]:
        """The keys of the calls that were in flight when the first process was killed."""
        killed_at = next((event.seq for event in self.events if event.kind == EventKind.RUN_RESUMED), 0)
        return [str(e.payload.get("key")) for e in find_in_flight([e for e in self.events if e.seq < killed_at])]

    def keys(self, kind: str) -> list[str]:
        return [str(event.payload.get("key")) for event in self.events if event.kind == kind]

    def seq_of(self, kind: str, phase: str) -> int:
        return next((e.seq for e in self.events if e.kind == kind and e.lane_id.startswith(f"{phase}/")), 0)


def read_proof(run_id: str, pids: Sequence[int]) -> Proof:
    """Read the journal and the rows of a run that these processes drove, in this order."""
    events, facts = read_events(run_id), read_run(run_id)
    phases = tuple(phase["key"] for phase in facts["phases"])
    costs = {row["state"]: row for row in sum_costs(run_id, "state")}
    return Proof(
        pids=tuple(pids),
        phases=phases,
        shares=_share_out(events, phases, pids),
        events=tuple(events),
        state=facts["state"],
        report=str(facts["final_report_path"] or ""),
        artifacts=tuple(phase["artifact"] for phase in facts["phases"] if phase["artifact"]),
        spent_micros=sum(int(row["total"]) for row in costs.values()),
        settled=int(costs["settled"]["calls"]) if "settled" in costs else 0,
        worktree=Path(str(facts["worktree_root"])),
        unanswered_micros=int(costs["reserved"]["total"]) if "reserved" in costs else 0,
    )


def find_in_flight(events: Sequence[Event]) -> list[Event]:
    """Return the beginnings of the calls that have no answer, in the order in which they were made."""
    answered = {event.payload.get("key") for event in events if event.kind in _CALLS}
    begun = {str(event.payload.get("key")): event for event in events if event.kind in _BEGINNINGS}
    return [event for key, event in begun.items() if key not in answered]


def _share_out(events: Sequence[Event], phases: Sequence[str], pids: Sequence[int]) -> dict[tuple[int, str], Share]:
    """Count who made and who replayed the calls: each process's part begins with `run.started` or `run.resumed`."""
    shares: dict[tuple[int, str], Share] = {}
    recorded: Counter[str] = Counter()
    begins = [event.seq for event in events if event.kind in (EventKind.RUN_STARTED, EventKind.RUN_RESUMED)]
    for pid, first, end in zip(pids, begins, [*begins[1:], len(events) + 1], strict=False):
        own = [event for event in events if first <= event.seq < end]
        for phase in phases:
            mine = [event for event in own if event.lane_id.startswith(f"{phase}/")]
            made = sum(1 for event in mine if event.kind in _CALLS)
            is_skipped = any(event.kind == EventKind.PHASE_SKIPPED for event in mine)
            attempts = {_attempt_of(event) for event in mine if event.kind in (EventKind.AGENT_STARTED, *_CALLS)}
            replayed = 0 if is_skipped else sum(recorded[attempt] for attempt in attempts)
            shares[pid, phase] = Share(made, replayed, is_skipped)
        recorded.update(_attempt_of(event) for event in own if event.kind in _CALLS)
    return shares


def _attempt_of(event: Event) -> str:
    """Return the phase and the number of its attempt, which is as far as a replay goes."""
    return "/".join(event.lane_id.split("/")[:2])


def check(
    proof: Proof, first_exit: int, *, is_untouched: bool, tests: tuple[SuiteResult, SuiteResult]
) -> list[tuple[str, bool]]:
    """Return every claim with whether it holds. `tests` are the project's, before and in what the run made."""
    before, after = tests
    answers, results = proof.keys(EventKind.MODEL_RESPONSE), proof.keys(EventKind.TOOL_RESULT)
    replayed = sum(share.replayed for share in proof.shares.values())
    first = proof.phases[0]
    return [
        (f"Process {proof.pids[0]} was killed by signal 9, and others went on", first_exit == -signal.SIGKILL),
        (
            f"The phase that was done before the kill ({first}) was not repeated",
            sum(proof.shares.get((pid, first), Share()).made > 0 for pid in proof.pids) == 1,
        ),
        (
            f"The {replayed} calls of the interrupted phase that were recorded were replayed, not made again",
            replayed > 0,
        ),
        (
            "The call that the kill cut off was made again, and has one result"
            if proof.cut_off
            else "The kill cut no call off",
            all((answers + results).count(key) == 1 for key in proof.cut_off),
        ),
        (f"Each of the {len(answers)} model calls was answered once", len(set(answers)) == len(answers)),
        (f"Each of the {len(results)} tool calls has one result", len(set(results)) == len(results)),
        ("No model call was paid twice", proof.settled == len(answers)),
        (
            "Nothing was implemented before the plan was approved",
            0
            < proof.seq_of(EventKind.HUMAN_APPROVAL_RECEIVED, "plan")
            < proof.seq_of(EventKind.PHASE_STARTED, "implement"),
        ),
        (f"All {len(proof.phases)} artifacts are there and valid", len(proof.artifacts) == len(proof.phases)),
        (
            f"The project's tests failed before and pass in the run's worktree ({after.tests} tests)",
            not before.is_passed and after.is_passed and after.tests > before.tests,
        ),
        ("Your own checkout was not touched", is_untouched),
        (
            f"The journal has {len(proof.events)} events without a gap and ends with the run completed",
            [event.seq for event in proof.events] == list(range(1, len(proof.events) + 1))
            and proof.events[-1].kind == EventKind.RUN_COMPLETED,
        ),
    ]
