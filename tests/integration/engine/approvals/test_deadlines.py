"""An approval that nobody answers in time is answered by the template's default, once, and never with yes."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError
from tests.support.engine_processes import Zygote
from tests.support.engine_world import World, hand_in, phase

from holdfast.engine import ApprovalRequest
from holdfast.engine.approvals import decisions
from holdfast.enums import RunStatus
from holdfast.errors import HoldfastError
from holdfast.persistence.statements import to_time_text
from holdfast.runtime.stores import open_journal
from holdfast.workflow import WorkflowTemplate


async def waiting(world: World, **options: Any) -> tuple[Any, Any]:
    """A run that waits for an approval with a deadline in two days, and the approval."""
    risky = phase("spec", **{"risk": "high", "approval_deadline": "2d", **options})
    result = await world.run(hand_in, risky, "plan")
    assert result.state is RunStatus.PAUSED
    [approval] = await world.approvals(result.run_id)
    return result, approval


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts every clock that deadlines are looked at with forward or back, by hours."""

    def move(hours: float) -> None:
        now = datetime.now(UTC) + timedelta(hours=hours)
        monkeypatch.setattr("holdfast.engine.approvals.decisions.now_text", lambda: to_time_text(now))
        monkeypatch.setattr("holdfast.engine.approvals.phase.utc_now", lambda: now)

    return move


async def test_the_deadline_is_fixed_when_the_question_is_asked(world: World) -> None:
    before = datetime.now(UTC)

    result, approval = await waiting(world, approval_default="abort")

    [event] = world.events(result.run_id, "human.approval.requested")
    wait = datetime.fromisoformat(approval.deadline_at) - before
    assert timedelta(days=2) - timedelta(seconds=1) <= wait < timedelta(days=2, minutes=5)
    assert event.payload["deadline_at"] == approval.deadline_at
    assert approval.shown["on_deadline"] == "abort"


async def test_until_the_deadline_it_waits_and_a_person_decides(world: World, later: Any) -> None:
    result, approval = await waiting(world)
    later(47)

    still = await world.engine().resume(result.run_id)
    recovered = await world.engine().recover()
    await world.engine().decide(result.run_id, approval.id, "approve", by="ann")

    assert still.state is RunStatus.PAUSED
    assert recovered == []
    assert (await world.engine().resume(result.run_id)).state is RunStatus.COMPLETED


async def test_after_the_deadline_a_resume_rejects_by_itself(world: World, later: Any) -> None:
    result, approval = await waiting(world)
    later(49)

    failed = await world.engine().resume(result.run_id)

    assert failed.state is RunStatus.FAILED
    assert failed.error is not None
    assert failed.error.code == "approval_rejected"
    assert approval.deadline_at in failed.error.message
    [row] = await world.approvals(result.run_id, "")
    [received] = world.events(result.run_id, "human.approval.received")
    assert (row.state, row.action, row.decided_by) == ("decided", "reject", "deadline")
    assert (received.payload["action"], received.payload["by"]) == ("reject", "deadline")


async def test_who_looks_after_runs_acts_on_a_deadline(world: World, later: Any) -> None:
    result, _approval = await waiting(world, approval_default="abort")
    later(49)

    assert await world.engine().recover() == [str(result.run_id)]

    [cancelled] = world.events(result.run_id, "run.cancelled")
    assert cancelled.payload["by"] == "deadline"
    assert await world.engine().recover() == []


async def test_an_answer_after_the_deadline_is_too_late(world: World, later: Any) -> None:
    result, approval = await waiting(world)
    later(49)

    with pytest.raises(HoldfastError) as error:
        await world.engine().decide(result.run_id, approval.id, "approve", by="ann")

    assert error.value.code == "approval_answered"
    assert "deadline" in error.value.message
    [row] = await world.approvals(result.run_id, "")
    assert (row.action, row.decided_by) == ("reject", "deadline")


async def test_a_person_at_the_same_moment_and_the_deadline_never_both_count(world: World, later: Any) -> None:
    for _ in range(3):
        result, approval = await waiting(world)
        other = world.open_database()

        async def deadline(run_id: str = str(result.run_id), db: Any = other) -> None:
            later(49)
            await world.engine(db=db).decide_overdue(run_id)

        answer = world.engine().decide(result.run_id, approval.id, "approve", by="ann")
        outcomes = await asyncio.gather(answer, deadline(), return_exceptions=True)
        later(0)

        [received] = world.events(result.run_id, "human.approval.received")
        [row] = await world.approvals(result.run_id, "")
        assert (row.action, row.decided_by) == (received.payload["action"], received.payload["by"])
        assert (row.decided_by == "ann") is (outcomes[0] is None)
        assert outcomes[1] is None


async def test_that_an_overdue_approval_cannot_be_answered_is_said_once(
    world: World, later: Any, caplog: pytest.LogCaptureFixture
) -> None:
    _result, approval = await waiting(world)
    await world.sql("UPDATE approvals SET shown = :shown", shown='{"on_deadline": "dance"}')
    undecided = set[str]()
    later(49)

    async with open_journal(world.db.store) as journal:
        for _ in range(3):
            assert await decisions.decide_overdue(world.db, journal, undecided=undecided) == []

    assert undecided == {approval.id}
    assert [record.message for record in caplog.records] == ["an overdue approval could not be answered"]


async def test_a_person_who_is_faster_than_a_deadline_that_was_seen_wins(
    world: World, later: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, approval = await waiting(world)
    other, look = world.open_database(), decisions.list_overdue

    async def look_and_be_slow(*args: Any, **options: Any) -> Any:
        found = await look(*args, **options)
        monkeypatch.setattr(decisions, "list_overdue", look)
        later(0)
        await world.engine(db=other).decide(result.run_id, approval.id, "approve", by="ann")
        return found

    monkeypatch.setattr(decisions, "list_overdue", look_and_be_slow)
    later(49)

    assert await world.engine().decide_overdue() == []
    [row] = await world.approvals(result.run_id, "")
    assert (row.action, row.decided_by) == ("approve", "ann")


async def test_a_clock_that_is_put_back_changes_no_answer(world: World, later: Any) -> None:
    result, approval = await waiting(world)
    later(-1000)
    earlier = await world.engine().resume(result.run_id)
    later(49)
    assert await world.engine().decide_overdue() == [str(result.run_id)]
    later(-1000)

    failed = await world.engine().resume(result.run_id)

    assert earlier.state is RunStatus.PAUSED
    assert failed.state is RunStatus.FAILED
    assert len(world.events(result.run_id, "human.approval.received")) == 1
    with pytest.raises(HoldfastError):
        await world.engine().decide(result.run_id, approval.id, "approve")


async def test_a_callback_that_thinks_too_long_has_not_answered(world: World) -> None:
    requests: list[ApprovalRequest] = []

    async def thinks(request: ApprovalRequest) -> str:
        requests.append(request)
        await asyncio.Event().wait()
        return "approve"

    risky = phase("spec", risk="high", approval_deadline="1s")
    result = await world.run(hand_in, risky, engine={"callback": thinks})

    [row] = await world.approvals(result.run_id, "")
    assert result.state is RunStatus.FAILED
    assert requests[0].deadline_at == row.deadline_at
    assert (row.action, row.decided_by) == ("reject", "deadline")


async def test_a_callback_asked_again_has_the_deadline_of_the_first_time(world: World, later: Any) -> None:
    result, approval = await waiting(world)
    requests: list[ApprovalRequest] = []

    async def person(request: ApprovalRequest) -> str:
        requests.append(request)
        later(49)  # the machine slept while they thought
        return "approve"

    failed = await world.engine(callback=person).resume(result.run_id)

    assert failed.state is RunStatus.FAILED
    assert [request.deadline_at for request in requests] == [approval.deadline_at]


async def test_what_a_run_that_is_over_had_asked_is_left_alone(world: World, later: Any) -> None:
    result, _approval = await waiting(world)
    await world.engine().abort(result.run_id)
    later(49)

    assert await world.engine().recover() == []

    assert len(await world.approvals(result.run_id, "pending")) == 1


async def test_a_deadline_decided_by_a_process_that_then_dies_is_acted_on_by_the_next(
    world: World, zygote: Zygote
) -> None:
    result, _approval = await waiting(world, approval_deadline="1s")
    await asyncio.sleep(1.1)  # the other process has a real clock

    assert zygote.start(world, "decide_overdue_and_die", "before").wait() is None
    [still_open] = await world.approvals(result.run_id)
    assert zygote.start(world, "decide_overdue_and_die", "after").wait() is None
    [decided] = await world.approvals(result.run_id, "decided")
    recovered = await world.engine().recover()

    assert decided.id == still_open.id
    assert recovered == [str(result.run_id)]
    assert (await world.engine().result(result.run_id)).state is RunStatus.FAILED
    assert len(world.events(result.run_id, "human.approval.received")) == 1


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"approval_deadline": "3 days", "risk": "high"}, "30m, 8h or 3d"),
        ({"approval_deadline": "0d", "risk": "high"}, "30m, 8h or 3d"),
        ({"approval_deadline": "366d", "risk": "high"}, "up to 365d"),
        ({"approval_deadline": 3, "risk": "high"}, "string"),
        ({"approval_deadline": "3d"}, "nobody is asked"),
        ({"approval_default": "abort", "risk": "high"}, "only with an approval_deadline"),
        ({"approval_deadline": "3d", "approval_default": "approve", "risk": "high"}, "'reject' or 'abort'"),
        ({"approval_deadline": "3d", "approval_default": "request_changes", "risk": "high"}, "'reject' or 'abort'"),
    ],
)
def test_a_deadline_that_makes_no_sense_is_refused(options: dict[str, Any], named: str) -> None:
    definition = {
        "name": "tried-out",
        "version": 1,
        "roles": [{"id": "author"}],
        "phases": [phase("spec", **options)],
    }

    with pytest.raises(ValidationError, match=named):
        WorkflowTemplate.model_validate(definition)


def test_a_deadline_is_kept_as_it_was_written_and_changes_no_other_hash() -> None:
    plain = {"name": "tried-out", "version": 1, "roles": [{"id": "author"}], "phases": [phase("spec", risk="high")]}
    made = WorkflowTemplate.model_validate(plain)
    with_deadline = WorkflowTemplate.model_validate(
        {**plain, "phases": [phase("spec", risk="high", approval_deadline="36h", approval_default="abort")]}
    )

    dumped = with_deadline.model_dump(by_alias=True)

    assert WorkflowTemplate.model_validate(dumped) == with_deadline
    assert dumped["phases"][0]["approval_deadline"] == "36h"
    assert with_deadline.phase("spec").approval_deadline_s == 129_600
    assert made.content_hash != with_deadline.content_hash
    assert "approval_d" not in str(made.model_dump(by_alias=True, exclude_defaults=True))
