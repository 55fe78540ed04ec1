"""One run of the flow in `child.py` through as many processes as it takes, and what must hold of it in the end."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.support.crash.flow_child import EFFECTS, ERRORS, RUN_ID, TRACE, Job, main, read_lines
from tests.support.crash.forked_processes import Process
from tests.support.crash.points import APPROVAL, SEED, WITH_INTENT
from tests.support.stores import open_store

from holdfast.runtime.events import Event

_MAX_PROCESSES = 20
_TIMES = ("wake_at", "retry_at", "resolved", "by", "took_s")
_OF_ONE_PROCESS = ("run.resumed", "run.paused", "step.unknown", "tool.unknown")
_OUTCOMES = ("step.completed", "step.failed")


@dataclass
class Run:
    """A store at `target`, a folder for effects and trace, and the story so far."""

    kind: str
    target: str
    folder: Path
    story: list[str] = field(default_factory=list)
    orphans: Counter[str] = field(default_factory=Counter)
    """Effects that happened and whose outcome did not reach the journal, by step; such a step may happen again."""

    # -- driving ------------------------------------------------------------------------------------------------------

    def finish(
        self, traps: Sequence[str | int] = (), action: Literal["kill", "full"] = "kill", **options: Any
    ) -> dict[str, Any]:
        """Start processes, each armed with the next trap, until the flow returns; answer as a person would."""
        left = list(traps)
        answer: tuple[str, str, Any] | None = None
        trap: str | int | None = None
        for _ in range(_MAX_PROCESSES):
            if left and trap is None:
                trap = left.pop(0)
                trap = trap if isinstance(trap, str) else len(self.trace()) + trap
            outcome = self.start(trap=trap, action=action, answer=answer, **options).wait()
            self.story.append(f"{'decide ' + answer[0] if answer else 'run'}: {_in_short(outcome)}")
            answer = None
            if outcome is None or outcome.get("code") == "store_full":
                self.story.append(f"  at {self.trace()[-1]}")
                trap = None
                self.note_orphans()
            elif outcome.get("code") in ("run_paused", "tool_outcome_unknown"):
                answer = self._answer_to(outcome["keys"][0])
            elif "code" in outcome:
                break
            elif outcome["result"] is not None:
                assert (trap, left) == (None, []), self.explain(f"never came to {trap or left}")
                return outcome["result"]
        raise AssertionError(self.explain("the run did not come to its end"))

    def start(self, **options: Any) -> Process:
        return Process(main, Job(self.kind, self.target, str(self.folder), **options))

    def _answer_to(self, key: str) -> tuple[str, str, Any]:
        """What a person decides who looks whether it has happened."""
        if key == APPROVAL:
            return key, "approve", None
        results = [line["result"] for line in self.effects() if line["key"] == f"{RUN_ID}:{key}"]
        return (key, "done", results[0]) if results else (key, "rerun", None)

    def note_orphans(self) -> None:
        recorded = Counter(event.payload["key"] for event in self.events() if event.kind in _OUTCOMES)
        for key, times in self.effect_counts().items():
            if times > recorded[key] + self.orphans[key]:
                self.orphans[key] += 1

    # -- looking ------------------------------------------------------------------------------------------------------

    def trace(self) -> list[str]:
        return read_lines(self.folder / TRACE)

    def effects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in read_lines(self.folder / EFFECTS)]

    def effect_counts(self) -> Counter[str]:
        return Counter(line["key"].removeprefix(f"{RUN_ID}:") for line in self.effects())

    def events(self) -> list[Event]:
        store = open_store(self.kind, self.target)
        try:
            return store.list_events(RUN_ID)  # which checks every hash
        finally:
            store.close()

    def explain(self, what: str) -> str:
        story = "\n  ".join([*self.story, *read_lines(self.folder / ERRORS)])
        return f"{what}\n  seed {SEED}, {self.kind}\n  {story}"

    # -- judging ------------------------------------------------------------------------------------------------------

    def check_against(self, reference: "Run") -> None:
        """Every effect once but for a step in flight, and the journal of an undisturbed run."""
        events = self.events()
        assert [event.seq for event in events] == list(range(1, len(events) + 1)), self.explain("numbers have gaps")
        completed = Counter(event.payload["key"] for event in events if event.kind == "step.completed")
        assert set(completed.values()) == {1}, self.explain(f"a result was recorded twice: {completed}")
        expected = reference.effect_counts() + Counter(
            {key: times for key, times in self.orphans.items() if key not in WITH_INTENT}
        )
        assert self.effect_counts() == expected, self.explain("effects differ")
        assert by_lane(events) == by_lane(reference.events()), self.explain("the journal differs")


NewRun = Callable[[str], Run]
GetReference = Callable[[str], tuple[Run, dict[str, Any]]]


def _in_short(outcome: Mapping[str, Any] | None) -> str:
    if outcome is None:
        return "killed"
    return f"{outcome['code']} {outcome['keys']}" if "code" in outcome else "done"


def by_lane(events: Iterable[Event]) -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """The events that tell what the flow did: without numbers, times, and what only tells of a process that died."""
    lanes: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for event in events:
        lane = lanes.setdefault(event.lane_id, [])
        if _tells_of_a_death(event):
            continue
        entry = (str(event.kind), {name: value for name, value in event.payload.items() if name not in _TIMES})
        if event.kind == "step.started" and entry in lane:
            continue  # the intent before it was never answered
        lane.append(entry)
    return {lane_id: lane for lane_id, lane in lanes.items() if lane}


def _tells_of_a_death(event: Event) -> bool:
    if event.kind == "run.failed":
        return event.payload["error"].get("code") == "tool_outcome_unknown"
    is_about_outcome = event.kind.startswith("human.approval.") and event.payload["key"] != APPROVAL
    return event.kind in _OF_ONE_PROCESS or is_about_outcome
