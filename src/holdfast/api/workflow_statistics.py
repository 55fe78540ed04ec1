"""What workflows took and cost so far, summed up from past runs."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from statistics import median

from pydantic import BaseModel, Field

from holdfast.api.serialize import to_usd
from holdfast.enums import RunStatus
from holdfast.persistence.statistics import PastPhase, PastRun
from holdfast.presentation.format import cost, duration, money, plural


class PhaseStatistics(BaseModel):
    key: str
    median_s: float
    median_cost_usd: float = Field(description="Real money; 0 where the figures are of rehearsals.")
    median_simulated_usd: float
    summary: str = Field(description="Both in words.", examples=["2 min · $0.12"])


class WorkflowStatistics(BaseModel):
    """Counts are of all runs; times and costs are of completed runs with real models, if there is one."""

    workflow: str
    runs: int
    by_state: dict[str, int]
    rehearsals: int = Field(description="How many of the runs used the simulated model.")
    last_run_at: str
    measured: int = Field(description="How many completed runs the figures below are of; 0 means there are none.")
    is_rehearsed: bool = Field(description="The figures are of rehearsals, because there is nothing else.")
    median_s: float | None
    median_waited_s: float | None = Field(description="Of that time, how long people were waited for.")
    median_cost_usd: float | None = Field(description="Real money; `null` where the figures are of rehearsals.")
    most_cost_usd: float | None
    median_simulated_usd: float | None = Field(description="What rehearsals made up, where the figures are of them.")
    phases: list[PhaseStatistics]
    facts: list[tuple[str, str]] = Field(description="The same in words.", examples=[[["Median time", "24 min"]]])
    note: str = Field(description="What the figures are of, where that is not plain.")


def to_statistics(past: Iterable[PastRun]) -> list[WorkflowStatistics]:
    """Sum up runs by workflow, the one used last first; `past` is newest first."""
    by_workflow: dict[str, list[PastRun]] = defaultdict(list)
    for run in past:
        by_workflow[run.workflow].append(run)
    return [_of_workflow(name, runs) for name, runs in by_workflow.items()]


def _of_workflow(name: str, runs: list[PastRun]) -> WorkflowStatistics:
    completed = [run for run in runs if run.state == RunStatus.COMPLETED and run.seconds is not None]
    real = [run for run in completed if not run.is_simulated]
    measured = real or completed
    is_rehearsed = bool(measured) and not real
    median_s = _median(run.seconds or 0.0 for run in measured)
    waited_s = _median(run.waited_s for run in measured)
    cost_usd = _median_usd(run.cost_micros for run in real)
    simulated_usd = _median_usd(run.simulated_micros for run in measured) if is_rehearsed else None
    waited = f"Of that time, people were waited for {duration(waited_s)}." if (waited_s or 0) > 1 else ""
    return WorkflowStatistics(
        workflow=name,
        runs=len(runs),
        by_state=dict(Counter(run.state for run in runs)),
        rehearsals=sum(run.is_simulated for run in runs),
        last_run_at=runs[0].created_at,
        measured=len(measured),
        is_rehearsed=is_rehearsed,
        median_s=median_s,
        median_waited_s=waited_s,
        median_cost_usd=cost_usd,
        most_cost_usd=to_usd(max(run.cost_micros for run in real)) if real else None,
        median_simulated_usd=simulated_usd,
        phases=_phases(measured),
        facts=[
            ("Median time", duration(median_s)),
            ("Median cost", f"only rehearsed, {money(simulated_usd)} simulated" if is_rehearsed else money(cost_usd)),
            (plural(len(runs), "run"), _describe_states(Counter(run.state for run in runs))),
        ],
        note="Times are of rehearsals: no run with real models is completed yet." if is_rehearsed else waited,
    )


def _describe_states(counts: Counter[str]) -> str:
    words = {RunStatus.COMPLETED: "completed", RunStatus.FAILED: "failed", RunStatus.CANCELLED: "aborted"}
    ended = {word: counts[state] for state, word in words.items()}
    by_word = {**ended, "open": counts.total() - sum(ended.values())}
    return ", ".join(f"{by_word[word]} {word}" for word in ("completed", "failed", "open", "aborted") if by_word[word])


def _phases(runs: list[PastRun]) -> list[PhaseStatistics]:
    by_key: dict[str, list[PastPhase]] = defaultdict(list)
    for run in runs:
        for phase in run.phases:
            by_key[phase.phase_key].append(phase)
    return [_of_phase(key, phases) for key, phases in by_key.items()]


def _of_phase(key: str, phases: list[PastPhase]) -> PhaseStatistics:
    seconds = median(phase.seconds for phase in phases)
    real = _median_usd(phase.cost_micros for phase in phases) or 0.0
    simulated = _median_usd(phase.simulated_micros for phase in phases) or 0.0
    return PhaseStatistics(
        key=key,
        median_s=seconds,
        median_cost_usd=real,
        median_simulated_usd=simulated,
        summary=f"{duration(seconds)} · {cost(real, simulated)}",
    )


def _median(values: Iterable[float]) -> float | None:
    known = list(values)
    return median(known) if known else None


def _median_usd(micros: Iterable[int]) -> float | None:
    middle = _median(micros)
    return None if middle is None else to_usd(round(middle))
