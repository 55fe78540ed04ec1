"""What the demo's journal and rows say, and the claims that follow. Nothing here was told by the processes."""

import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.cli.following import open_configured_store
from holdfast.cli.listing import read_run
from holdfast.persistence.plain import query
from holdfast.runtime.events import Event

_CALLS = ("model.response", "tool.result")


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

    def keys(self, kind: str) -> list[str]:
        return [str(event.payload.get("key")) for event in self.events if event.kind == kind]

    def seq_of(self, kind: str, phase: str) -> int:
        return next((e.seq for e in self.events if e.kind == kind and e.lane_id.startswith(f"{phase}/")), 0)


def read_proof(run_id: str, pids: Sequence[int]) -> Proof:
    store = open_configured_store()
    try:
        events = store.list_events(run_id)
    finally:
        store.close()
    facts = read_run(run_id)
    phases = tuple(phase["key"] for phase in facts["phases"])
    money = query("SELECT state, amount_micros FROM ledger WHERE run_id = :id", {"id": run_id})
    return Proof(
        pids=tuple(pids),
        phases=phases,
        shares=_share_out(events, phases, pids),
        events=tuple(events),
        state=facts["state"],
        report=str(facts["final_report_path"] or ""),
        artifacts=tuple(phase["artifact"] for phase in facts["phases"] if phase["artifact"]),
        spent_micros=sum(row["amount_micros"] for row in money),
        settled=sum(1 for row in money if row["state"] == "settled"),
        unanswered_micros=sum(row["amount_micros"] for row in money if row["state"] == "reserved"),
    )


def _share_out(events: Sequence[Event], phases: Sequence[str], pids: Sequence[int]) -> dict[tuple[int, str], Share]:
    """Each process's part of the journal begins with `run.started` or `run.resumed`."""
    shares: dict[tuple[int, str], Share] = {}
    recorded: Counter[str] = Counter()
    begins = [event.seq for event in events if event.kind in ("run.started", "run.resumed")]
    for pid, first, end in zip(pids, begins, [*begins[1:], len(events) + 1], strict=False):
        own = [event for event in events if first <= event.seq < end]
        for phase in phases:
            mine = [event for event in own if event.lane_id.startswith(f"{phase}/")]
            made = sum(1 for event in mine if event.kind in _CALLS)
            is_skipped = any(event.kind == "phase.skipped" for event in mine)
            is_at_work = any(event.kind in ("agent.started", *_CALLS) for event in mine)
            replayed = recorded[phase] if is_at_work and not is_skipped else 0
            shares[pid, phase] = Share(made, replayed, is_skipped)
        recorded.update({phase: shares[pid, phase].made for phase in phases})
    return shares


def check(proof: Proof, first_exit: int, *, is_untouched: bool) -> list[tuple[str, bool]]:
    """Every claim with whether it holds."""
    answers, results = proof.keys("model.response"), proof.keys("tool.result")
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
        (f"Each of the {len(answers)} model calls was answered once", len(set(answers)) == len(answers)),
        (f"Each of the {len(results)} tool calls has one result", len(set(results)) == len(results)),
        ("No model call was paid twice", proof.settled == len(answers)),
        (
            "Nothing was implemented before a person had approved the plan",
            0 < proof.seq_of("human.approval.received", "plan") < proof.seq_of("phase.started", "implement"),
        ),
        (f"All {len(proof.phases)} artifacts are there and valid", len(proof.artifacts) == len(proof.phases)),
        ("Your own checkout was not touched", is_untouched),
        (
            f"The journal has {len(proof.events)} events without a gap and ends with the run completed",
            [event.seq for event in proof.events] == list(range(1, len(proof.events) + 1))
            and proof.events[-1].kind == "run.completed",
        ),
    ]
