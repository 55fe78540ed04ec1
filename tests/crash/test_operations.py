"""Kills in the middle of waits, children, markers and compensations, at sampled points; all of them in `make torture`.

Afterwards the result is that of an undisturbed run, nothing is recorded twice, and values that were handed to the world
are still the same.
"""

import random
from collections import Counter

import pytest
from tests.support.crash.flow_child import EFFECTS, RUN_ID, read_lines
from tests.support.crash.flow_run import NewRun, Run
from tests.support.crash.points import IS_TORTURE, SEED
from tests.support.stores import DISK_KINDS, open_store

RESULT = {"steps": [True, {"sent": 1}, True, 3, 4, "broken"]}
SERVED = {"steps": ["reserved", True, True, 7, "careful", 2]}
PLAIN = {"steps": [1, "careful", 2, 3, 4]}
MENDED = {"steps": ["go", {"sent": 1}, "mended", True, "2020", "too late"]}
_MAX_PROCESSES = 8


def _sample(kind: str, program: str, points: int) -> list[int]:
    everything = range(1, points + 1)
    return list(everything) if IS_TORTURE else sorted(random.Random(f"{SEED} {kind} {program}").sample(everything, 2))


def _cases(program: str, points: int, **fewer: int) -> list[tuple[str, int]]:
    return [(kind, point) for kind in DISK_KINDS for point in _sample(kind, program, fewer.get(kind, points))]


def _finish(run: Run, program: str, point: int) -> dict[str, object]:
    """Run until it comes to its end, the first process with a trap at a point of the trace."""
    for number in range(_MAX_PROCESSES):
        outcome = run.start(program=program, trap=point if number == 0 else None).wait()
        if outcome is not None:
            return outcome
    raise AssertionError(run.explain("the run did not come to its end"))


def _check_once(run: Run) -> None:
    store = open_store(run.kind, run.target)
    try:
        for run_id in store.list_runs():
            events = store.list_events(run_id)  # which checks every hash
            ends = (
                *("step.completed", "wait.completed", "wait.expired", "child.completed", "value.recorded"),
                *("human.approval.requested", "human.approval.received"),
            )
            starts = ("wait.started", "child.started", "version.marked", "cancel.delivered", "scope.opened")
            notes = ("log.written", "status.set", "partial.emitted", "event.received", "run.created")
            counts = Counter((event.kind, event.payload.get("key")) for event in events)
            for kind in (*ends, *starts, *notes):
                assert {times for (of, _), times in counts.items() if of == kind} <= {1}, run.explain(f"{kind} twice")
    finally:
        store.close()


@pytest.mark.parametrize(("kind", "point"), _cases("errand", 90))
def test_every_operation_survives_a_kill(kind: str, point: int, new_run: NewRun) -> None:
    run = new_run(kind)

    assert _finish(run, "errand", point) == {"result": RESULT}, run.explain("the result differs")

    _check_once(run)
    used = {line["result"] for line in run.effects() if line["key"].endswith(":use")}
    assert len(used) == 1, run.explain("the world has seen two values")
    done = Counter(line["result"] for line in run.effects())
    assert {name for name in done if name.startswith("undone")} == {"undone inside", "undone outside"}
    assert len(open_store(kind, run.target).list_runs()) == 3, run.explain("a child was lost or doubled")


@pytest.mark.parametrize(("kind", "point"), _cases("served", 84, jsonl=66))
def test_a_started_flow_of_decorated_steps_with_options_survives_a_kill_of_its_runtime(
    kind: str, point: int, new_run: NewRun
) -> None:
    run = new_run(kind)

    assert _finish(run, "served", point) == {"result": SERVED}, run.explain("the result differs")

    _check_once(run)
    effects = Counter(line["key"].rpartition(":")[2] for line in run.effects())
    assert effects["g1.2/careful"] == 1, run.explain("a step that was looked for was made again")
    assert set(effects.values()) <= {1, 2}, run.explain("more than the step in flight happened twice")
    assert len(open_store(kind, run.target).list_runs()) == 2, run.explain("a child was lost or doubled")


@pytest.mark.parametrize(("kind", "point"), _cases("plain", 76, jsonl=66))
def test_a_flow_without_async_survives_a_kill(kind: str, point: int, new_run: NewRun) -> None:
    run = new_run(kind)

    assert _finish(run, "plain", point) == {"result": PLAIN}, run.explain("the result differs")

    _check_once(run)
    effects = Counter(line["key"].rpartition(":")[2] for line in run.effects())
    assert effects["careful"] == 1, run.explain("a step that was looked for was made again")
    assert set(effects.values()) <= {1, 2}, run.explain("more than the step in flight happened twice")
    used = {line["result"] for line in run.effects() if line["key"].endswith(":use")}
    assert len(used) == 1, run.explain("the world has seen two values")


@pytest.mark.parametrize(("kind", "point"), [case for case in _cases("mended", 120) if case[0] != "jsonl"])
def test_what_is_done_to_runs_from_outside_and_by_the_clock_survives_a_kill(
    kind: str, point: int, new_run: NewRun
) -> None:
    run = new_run(kind)

    assert _finish(run, "mended", point) == {"result": MENDED}, run.explain("the result differs")

    _check_once(run)
    store = open_store(kind, run.target)
    kinds = {run_id: [str(event.kind) for event in store.list_events(run_id)] for run_id in store.list_runs()}
    store.close()
    assert {run_id for run_id in kinds if "." not in run_id} == {RUN_ID, "fork", "limited", "nightly@2020-01-01T0000Z"}
    assert kinds[RUN_ID].count("run.failed") == kinds[RUN_ID].count("run.resume.requested") == 1
    undone = {line["result"] for line in run.effects()} & {"undone late", "undone below"}
    assert len(undone) == sum(found.count("scope.opened") for found in kinds.values()), run.explain(str(undone))
    assert kinds["limited"].count("run.cancel.requested") == 1, run.explain("cancelled twice")


@pytest.mark.parametrize(("kind", "point"), _cases("cancelled", 60))
def test_a_cancelled_run_undoes_everything_though_it_is_killed_meanwhile(
    kind: str, point: int, new_run: NewRun
) -> None:
    run = new_run(kind)

    assert _finish(run, "cancelled", point).get("code") == "run_cancelled", run.explain("not cancelled")

    _check_once(run)
    order = list(dict.fromkeys(line["result"] for line in run.effects()))
    assert order[-3:] == ["undone below", "undone inside", "undone outside"], run.explain(
        str(read_lines(run.folder / EFFECTS))
    )
    store = open_store(kind, run.target)
    assert {store.list_events(run_id)[-1].kind for run_id in store.list_runs()} == {"run.cancelled"}
    store.close()
