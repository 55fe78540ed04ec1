"""Two runs side by side: what each came to, what it cost and took, phase by phase, and which artifacts differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.presentation.diff import compare
from holdfast.presentation.format import duration, plural
from holdfast.presentation.status import Note
from holdfast.runtime.run_fold.money import UsageTotal


@dataclass(frozen=True)
class ComparedPhase:
    status: str
    attempts: int
    took_s: float | None
    cost: str

    def describe(self) -> str:
        tries = plural(self.attempts, "attempt") if self.attempts > 1 else ""
        took = duration(self.took_s) if self.took_s is not None else ""
        return ", ".join(part for part in (self.status, tries, took, self.cost) if part)


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """One side, in the words its own page has."""

    run_id: str
    heading: str
    headline: Note
    cost: str
    took_s: float
    usage: UsageTotal
    phases: Mapping[str, ComparedPhase] = field(default_factory=dict)
    artifacts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """By phase the path and the content of what it handed in last."""


@dataclass(frozen=True)
class ComparedSide:
    run_id: str
    heading: str
    headline: Note


@dataclass(frozen=True)
class ComparisonRow:
    label: str
    values: tuple[str, str]
    is_different: bool


@dataclass(frozen=True)
class ComparedArtifact:
    phase: str
    path: str
    text: str
    is_different: bool


@dataclass(frozen=True)
class RunComparison:
    sides: tuple[ComparedSide, ComparedSide]
    rows: list[ComparisonRow]
    phases: list[ComparisonRow]
    artifacts: list[ComparedArtifact]


def compare_runs(first: ComparedRun, second: ComparedRun) -> RunComparison:
    """Say how two runs differ; the phases are in the order of the first, then those that only the second has."""
    runs = (first, second)
    keys = list(dict.fromkeys([*first.phases, *second.phases]))
    return RunComparison(
        sides=(_to_side(first), _to_side(second)),
        rows=[
            _to_row("Cost", [run.cost for run in runs]),
            _to_row("Took", [duration(run.took_s) for run in runs]),
            _to_row("Model calls", [f"{run.usage.calls:,}" for run in runs]),
            _to_row("Tokens", [f"{run.usage.input_tokens:,} in, {run.usage.output_tokens:,} out" for run in runs]),
        ],
        phases=[_to_row(key, [_describe_phase(run.phases.get(key)) for run in runs]) for key in keys],
        artifacts=[_compare_artifact(key, first, second) for key in keys if any(key in run.artifacts for run in runs)],
    )


def _to_side(run: ComparedRun) -> ComparedSide:
    return ComparedSide(run.run_id, run.heading, run.headline)


def _to_row(label: str, values: Sequence[str]) -> ComparisonRow:
    first, second = values
    return ComparisonRow(label, (first, second), first != second)


def _describe_phase(phase: ComparedPhase | None) -> str:
    return phase.describe() if phase is not None else "not a phase of it"


def _compare_artifact(key: str, first: ComparedRun, second: ComparedRun) -> ComparedArtifact:
    sides = [run.artifacts.get(key) for run in (first, second)]
    before, after = sides
    if before is None or after is None:
        path, _ = before or after or ("", "")
        return ComparedArtifact(key, path, f"only in the {'second' if before is None else 'first'}", is_different=True)
    if before[1] == after[1]:
        return ComparedArtifact(key, after[0], "the same in both", is_different=False)
    file = compare(after[0], before[1], after[1])
    return ComparedArtifact(key, after[0], f"+{file.added:,} −{file.removed:,}", is_different=True)
