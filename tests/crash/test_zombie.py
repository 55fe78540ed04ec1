"""One owner: a dead one is known at once, a live one is left alone, and one that wakes up too late is refused."""

import contextlib
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.crash.flow_child import RUN_ID as TRIP_ID
from tests.support.crash.flow_run import GetReference, NewRun, Run
from tests.support.crash.forked_processes import Process
from tests.support.crash.points import points_before_appends
from tests.support.crash.run_owner import RUN_ID, SHORT_LEASE_S, Owner, main
from tests.support.progress_limit import wait_until
from tests.support.stores import DISK_KINDS, open_store, progress

from holdfast import cancel_flow, decide
from holdfast.errors import RunBusy

FENCED_KINDS = ("sqlite", "postgres")
RESULT = ["first done", "long done", "last done"]


class Stage:
    """One run, and the processes that want to drive it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._processes: list[Process] = []
        self.owner_options: dict[str, Any] = {}

    def owner(self, name: str) -> Owner:
        return Owner(self.run.kind, self.run.target, self.run.folder, name, **self.owner_options)

    def start(self, name: str) -> Process:
        self._processes.append(Process(main, self.owner(name)))
        return self._processes[-1]

    def start_until_long_step(self, name: str) -> Process:
        process = self.start(name)
        wait_until(self.owner(name).started.exists, f"{name} is in its long step")
        return process

    def end_long_step(self, name: str) -> None:
        self.owner(name).may_end.touch()

    def run_to_end(self, name: str) -> Any:
        self.end_long_step(name)
        return self.start(name).wait()

    def open(self) -> contextlib.closing[Any]:
        return contextlib.closing(self.owner("test").open())

    def kinds(self) -> list[str]:
        with self.open() as store:
            return [str(event.kind) for event in store.list_events(RUN_ID)]

    def end(self) -> None:
        for process in self._processes:
            process.end()


@pytest.fixture(params=DISK_KINDS)
def any_stage(request: pytest.FixtureRequest, new_run: NewRun) -> Iterator[Stage]:
    stage = Stage(new_run(request.param))
    yield stage
    stage.end()


@pytest.fixture(params=FENCED_KINDS)
def stage(request: pytest.FixtureRequest, new_run: NewRun) -> Iterator[Stage]:
    stage = Stage(new_run(request.param))
    yield stage
    stage.end()


def _take_over_by_force(kind: str, target: str, run_id: str) -> None:
    with contextlib.closing(open_store(kind, target)) as store:
        store.release(store.claim(run_id, force=True))


def test_a_killed_owner_is_known_at_once(stage: Stage) -> None:
    killed = stage.start_until_long_step("first")
    killed.signal(signal.SIGKILL)

    result = stage.run_to_end("second")

    assert result == RESULT
    assert killed.wait() is None


def test_the_run_of_a_live_owner_is_busy(stage: Stage) -> None:
    owner = stage.start_until_long_step("first")

    assert stage.run_to_end("second") == "run_busy"

    stage.end_long_step("first")
    assert owner.wait() == RESULT
    assert stage.run_to_end("second") == RESULT


def test_a_stopped_owner_on_the_same_machine_is_alive(stage: Stage) -> None:
    owner = stage.start_until_long_step("first")
    owner.signal(signal.SIGSTOP)

    assert stage.run_to_end("second") == "run_busy"

    owner.signal(signal.SIGCONT)
    stage.end_long_step("first")
    assert owner.wait() == RESULT


def test_a_zombie_is_refused_and_its_successor_is_not(stage: Stage) -> None:
    zombie = stage.start_until_long_step("zombie")
    zombie.signal(signal.SIGSTOP)
    _take_over_by_force(stage.run.kind, stage.run.target, RUN_ID)
    successor = stage.start_until_long_step("successor")

    zombie.signal(signal.SIGCONT)
    stage.end_long_step("zombie")
    refusal = zombie.wait()
    stage.end_long_step("successor")

    assert refusal == "lease_lost"
    assert successor.wait() == RESULT
    assert stage.kinds().count("step.completed") == len(RESULT)


@pytest.mark.parametrize("stage", ["postgres"], indirect=True)
def test_a_lease_that_ran_out_lets_another_in(stage: Stage) -> None:
    stage.owner_options["lease_s"] = SHORT_LEASE_S
    zombie = stage.start_until_long_step("zombie")
    zombie.signal(signal.SIGSTOP)

    outcomes: list[Any] = []

    def is_taken_over() -> bool:
        outcomes.append(stage.run_to_end("successor"))
        return bool(outcomes[-1] != "run_busy")

    wait_until(is_taken_over, "the lease is over")
    zombie.signal(signal.SIGCONT)
    stage.end_long_step("zombie")

    assert outcomes[-1] == RESULT
    assert zombie.wait() == "lease_lost"
    assert stage.kinds()[-1] == "run.completed"


@pytest.mark.parametrize(
    ("kind", "point"),
    [
        (kind, point)
        for kind in FENCED_KINDS
        for point in points_before_appends(
            kind, after="append:run.started:after", until="append:run.paused:after", how_many=4
        )
    ],
)
def test_a_zombie_that_was_about_to_append_changes_nothing(
    kind: str, point: str, new_run: NewRun, get_reference: GetReference
) -> None:
    reference, expected = get_reference(kind)
    run = new_run(kind)
    zombie = run.start(trap=point, action="stop")
    wait_until(zombie.is_stopped, f"the zombie stands still at {point}")
    run.note_orphans()
    _take_over_by_force(kind, run.target, TRIP_ID)

    assert run.finish() == expected
    run.check_against(reference)
    journal = run.events()
    zombie.signal(signal.SIGCONT)

    assert zombie.wait()["code"] == "lease_lost"
    assert run.events() == journal


async def test_outside_writers_do_not_disturb_the_owner(stage: Stage) -> None:
    stage.owner_options["has_approval"] = True
    owner = stage.start_until_long_step("first")
    wait_until(lambda: "human.approval.requested" in stage.kinds(), "the approval is asked for")

    with stage.open() as store:
        await decide(RUN_ID, "gate", "approve", store=store)
        store.save_event(progress(RUN_ID, note="from outside"))
    stage.end_long_step("first")
    outcome = owner.wait()

    expected = ["first done", "long done", "approve", "last done"]
    assert outcome in ("run_paused", expected)  # its other lane had stopped for the answer before it came
    assert stage.run_to_end("second") == expected
    assert stage.kinds().count("step.completed") == len(RESULT)


async def test_a_step_in_flight_is_in_doubt_only_once_its_process_is_gone(stage: Stage) -> None:
    stage.owner_options["on_unknown"] = "fail"
    owner = stage.start_until_long_step("first")

    with stage.open() as store:
        with pytest.raises(RunBusy):
            await decide(RUN_ID, "long", "done", result="as told", store=store)
        owner.signal(signal.SIGKILL)
        assert owner.wait() is None
        await decide(RUN_ID, "long", "done", result="as told", store=store)

    assert stage.run_to_end("second") == ["first done", "as told", "last done"]


async def test_cancelling_from_another_process_ends_a_long_step(stage: Stage) -> None:
    owner = stage.start_until_long_step("first")

    with stage.open() as store:
        await cancel_flow(RUN_ID, store=store, reason="not needed")

    assert owner.wait() == "run_cancelled"
    assert stage.kinds()[-2:] == ["run.cancel.requested", "run.cancelled"]
    assert stage.run_to_end("second") == "run_cancelled"


def test_a_shutdown_leaves_the_run_running_and_resumable(any_stage: Stage) -> None:
    owner = any_stage.start_until_long_step("first")
    owner.signal(signal.SIGTERM)

    assert owner.wait() == "shut down"
    assert any_stage.kinds() == ["run.created", "run.started", "step.completed"]
    assert any_stage.run_to_end("second") == RESULT
