"""What a person is asked, when, and what their answer does."""

import json
from typing import Any

import pytest
from tests.support.engine_processes import Zygote
from tests.support.engine_world import Turn, World, artifact, hand_in, phase

from holdfast.engine import ApprovalRequest
from holdfast.enums import ApprovalDecisionAction, RunStatus
from holdfast.errors import HoldfastError
from holdfast.persistence.models import ArtifactRow, RunPhaseRow


class Person:
    """A callback that answers as told, one answer after the other, and remembers what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.requests: list[ApprovalRequest] = []
        self._answers = list(answers)

    async def __call__(self, request: ApprovalRequest) -> Any:
        self.requests.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def paused(world: World, script: Any = hand_in, *phases: Any) -> tuple[Any, Any]:
    """A run that waits for an approval, and the approval."""
    result = await world.run(script, *(phases or (phase("spec", risk="high"), "plan")))
    assert result.state is RunStatus.PAUSED
    [approval] = await world.approvals(result.run_id)
    return result, approval


async def test_whether_a_person_is_asked_depends_on_risk_and_rule(world: World) -> None:
    person = Person(*["approve"] * 3)
    phases = [
        phase("plain", risk="low"),
        phase("risky", risk="medium"),
        phase("grave", risk="critical"),
        phase("waved", risk="high", approval="never"),
        phase("doubted", risk="low", approval="always"),
    ]

    result = await world.run(hand_in, *phases, engine={"callback": person})

    assert result.state is RunStatus.COMPLETED
    assert [request.phase_key for request in person.requests] == ["risky", "grave", "doubted"]


async def test_a_callback_is_recorded_as_what_it_is(world: World) -> None:
    person = Person(ApprovalDecisionAction.APPROVE)

    result = await world.run(hand_in, phase("spec", risk="high"), engine={"callback": person})

    [row] = await world.approvals(result.run_id, "decided")
    [received] = world.events(result.run_id, "human.approval.received")
    [request] = person.requests
    assert (row.action, row.decided_by) == ("approve", "callback")
    assert (received.payload["action"], received.payload["by"]) == ("approve", "callback")
    assert (request.run_id, request.phase_key, request.risk, request.digest) == (
        str(result.run_id),
        "spec",
        "high",
        row.digest,
    )
    assert "out/spec.json" in request.content["diff"]


async def test_a_callback_that_says_who_it_is_is_recorded_under_that_name(world: World) -> None:
    person = Person("approve")
    person.by = "--yes"  # type: ignore[attr-defined]

    result = await world.run(hand_in, phase("spec", risk="high"), engine={"callback": person})

    [row] = await world.approvals(result.run_id, "decided")
    assert row.decided_by == "--yes"


@pytest.mark.parametrize("answer", [RuntimeError("the terminal is gone"), "perhaps", None], ids=str)
async def test_where_a_callback_gives_no_answer_nothing_is_decided(world: World, answer: Any) -> None:
    engine = {"callback": Person(answer)}

    with pytest.raises((RuntimeError, HoldfastError)):
        await world.run(hand_in, phase("spec", risk="high"), engine=engine)

    [run_id] = world.db.store.list_runs()
    assert await world.phase_states(run_id) == {"spec": "awaiting_approval"}
    result = await world.engine(callback=Person("approve")).resume(run_id)
    assert result.state is RunStatus.COMPLETED
    assert len(world.turns) == 1


async def test_without_a_callback_the_run_pauses_and_goes_on_after_the_decision(world: World) -> None:
    waiting, approval = await paused(world)
    other = world.open_database()

    still = await world.engine(db=other).resume(waiting.run_id)
    await world.engine(db=other).decide(str(waiting.run_id), approval.id, "approve", "good", "ann", approval.digest)
    result = await world.engine(db=other).resume(waiting.run_id)

    assert still.state is RunStatus.PAUSED
    assert (await world.run_row(waiting.run_id)).pause_reason is None
    assert result.state is RunStatus.COMPLETED
    assert world.phases_done() == ["spec", "plan"]
    [row] = await world.approvals(result.run_id, "")
    assert (row.action, row.comment, row.decided_by) == ("approve", "good", "ann")


async def test_a_decision_can_be_made_in_another_process(world: World, zygote: Zygote) -> None:
    waiting, approval = await paused(world)

    answer = zygote.start(world, "decide", str(waiting.run_id), approval.id, "approve").wait()
    result = await world.engine().resume(waiting.run_id)

    assert answer == {"result": None}
    assert result.state is RunStatus.COMPLETED


async def test_requested_changes_start_the_next_attempt_with_comment_and_earlier_artifact(world: World) -> None:
    earlier: list[str] = []

    def script(turn: Turn) -> None:
        earlier.extend(path.read_text() for path in turn.root.glob("out/spec.json.*"))
        turn.hand_in(approach=f"Attempt number {len(world.turns)}.")

    waiting, approval = await paused(world, script, phase("spec", risk="high"))
    await world.engine().decide(waiting.run_id, approval.id, "request_changes", "Name the risks.")
    again = await world.engine(script).resume(waiting.run_id)

    assert again.state is RunStatus.PAUSED
    assert [item.attempts for item in again.phases] == [2]
    assert "Name the risks." in world.turns[1].envelope
    assert "Name the risks." not in world.turns[0].envelope
    assert "out/spec.json.before-spec-2" in world.turns[1].envelope
    assert [json.loads(text)["approach"] for text in earlier] == ["Attempt number 1."]
    first, second = await world.artifacts(again.run_id)
    assert (first.attempt, first.state, second.attempt, second.state) == (1, "accepted", 2, "accepted")
    [open_now] = await world.approvals(again.run_id)
    await world.engine().decide(again.run_id, open_now.id, "approve")
    assert (await world.engine(script).resume(again.run_id)).state is RunStatus.COMPLETED


async def test_what_a_person_asked_for_still_holds_after_a_failure(world: World) -> None:
    async def script(turn: Turn) -> None:
        if len(world.turns) == 2:
            raise RuntimeError("no luck")
        turn.hand_in()

    person = Person("request_changes", "approve")
    waiting = await world.run(script, phase("spec", risk="high", attempts=2), engine={"callback": person})

    assert waiting.state is RunStatus.COMPLETED
    assert "A person asked for changes" in world.turns[2].envelope
    assert "no luck" in world.turns[2].envelope


async def test_a_rejection_fails_the_run_and_a_retry_asks_again(world: World) -> None:
    waiting, approval = await paused(world)
    await world.engine().decide(waiting.run_id, approval.id, ApprovalDecisionAction.REJECT, "not like this", "bo")

    failed = await world.engine().resume(waiting.run_id)
    again = await world.engine().retry(waiting.run_id)

    assert failed.state is RunStatus.FAILED
    assert failed.error is not None
    assert failed.error.code == "approval_rejected"
    assert "not like this" in str(failed.error)
    assert again.state is RunStatus.PAUSED
    assert len(await world.approvals(again.run_id)) == 1


async def test_an_answer_can_be_to_abort_the_run(world: World) -> None:
    waiting, approval = await paused(world)
    await world.engine().decide(waiting.run_id, approval.id, "abort", "never mind", "bo")

    result = await world.engine().resume(waiting.run_id)

    assert result.state is RunStatus.CANCELLED
    [event] = world.events(result.run_id, "run.cancelled")
    assert (event.payload["reason"], event.payload["by"]) == ("never mind", "bo")


async def test_an_answer_to_something_else_than_was_asked_is_stale(world: World) -> None:
    waiting, approval = await paused(world)

    with pytest.raises(HoldfastError) as error:
        await world.engine().decide(waiting.run_id, approval.id, "approve", digest="0" * 64)

    assert error.value.code == "approval_stale"
    assert len(await world.approvals(waiting.run_id)) == 1


@pytest.mark.parametrize(
    ("changed_file", "named"), [("out/spec.json", "the artifact"), ("app.py", "the files"), ("new.txt", "the files")]
)
async def test_what_changed_while_it_waited_is_asked_anew_with_the_difference(
    world: World, changed_file: str, named: str
) -> None:
    waiting, approval = await paused(world)
    target = world.worktree(waiting.run_id) / changed_file
    target.write_text(f"{target.read_text() if target.exists() else ''} \n")

    with pytest.raises(HoldfastError) as error:
        await world.engine().decide(waiting.run_id, approval.id, "approve")
    again = await world.engine().resume(waiting.run_id)

    assert error.value.code == "approval_stale"
    assert named in error.value.message
    assert again.state is RunStatus.PAUSED
    [new_approval] = await world.approvals(waiting.run_id)
    assert new_approval.id != approval.id
    assert new_approval.shown["changed"] == [named]
    assert changed_file in new_approval.shown["diff_since"]
    with pytest.raises(HoldfastError) as late:
        await world.engine().decide(waiting.run_id, approval.id, "approve")
    assert late.value.code == "approval_stale"
    await world.engine().decide(waiting.run_id, new_approval.id, "approve", digest=new_approval.digest)
    assert (await world.engine().resume(waiting.run_id)).state is RunStatus.COMPLETED
    assert world.phases_done() == ["spec", "plan"]


async def test_a_change_after_the_answer_makes_it_count_for_nothing(world: World) -> None:
    waiting, approval = await paused(world)
    await world.engine().decide(waiting.run_id, approval.id, "approve")
    (world.worktree(waiting.run_id) / "app.py").write_text("print('else')\n")

    again = await world.engine().resume(waiting.run_id)

    assert again.state is RunStatus.PAUSED
    assert world.phases_done() == ["spec"]
    [new_approval] = await world.approvals(waiting.run_id)
    assert new_approval.shown["changed"] == ["the files"]


async def test_an_artifact_handed_in_beside_it_does_not_make_an_approval_stale(world: World) -> None:
    readers = [phase("style", needs=[], read_only=True, risk="high"), phase("tests", needs=[], read_only=True)]
    waiting, approval = await paused(world, hand_in, *readers)

    await world.engine().decide(waiting.run_id, approval.id, "approve")

    assert (await world.engine().resume(waiting.run_id)).state is RunStatus.COMPLETED
    assert sorted(world.phases_done()) == ["style", "tests"]


async def test_two_readers_can_wait_at_the_same_time(world: World) -> None:
    readers = [phase(key, needs=[], read_only=True, risk="high") for key in ("style", "tests")]
    waiting = await world.run(hand_in, *readers)
    first, second = await world.approvals(waiting.run_id)

    await world.engine().decide(waiting.run_id, first.id, "approve")
    half = await world.engine().resume(waiting.run_id)
    await world.engine().decide(waiting.run_id, second.id, "approve")

    assert half.state is RunStatus.PAUSED
    assert (await world.engine().resume(waiting.run_id)).state is RunStatus.COMPLETED


async def test_the_first_answer_counts(world: World) -> None:
    waiting, approval = await paused(world)
    await world.engine().decide(waiting.run_id, approval.id, "approve", by="ann")

    with pytest.raises(HoldfastError) as error:
        await world.engine().decide(waiting.run_id, approval.id, "reject", by="bo")

    assert error.value.code == "approval_answered"
    assert "ann" in error.value.message
    assert len(world.events(waiting.run_id, "human.approval.received")) == 1


async def test_a_faster_answer_from_elsewhere_beats_the_callback(world: World) -> None:
    other = world.open_database()

    async def slow(request: ApprovalRequest) -> str:
        await world.engine(db=other).decide(request.run_id, request.approval_id, "reject", "no", "ann")
        return "approve"

    result = await world.run(hand_in, phase("spec", risk="high"), engine={"callback": slow})

    assert result.state is RunStatus.FAILED
    [row] = await world.approvals(result.run_id, "decided")
    assert (row.action, row.decided_by) == ("reject", "ann")


async def test_an_approval_of_another_run_is_not_found(world: World) -> None:
    waiting, _approval = await paused(world)
    _other, others = await paused(world)

    for run_id, approval_id, code in (
        (waiting.run_id, others.id, "approval_not_found"),
        (waiting.run_id, "no-such-approval", "approval_not_found"),
        ("00000000-0000-4000-8000-000000000000", others.id, "run_not_found"),
    ):
        with pytest.raises(HoldfastError) as error:
            await world.engine().decide(run_id, approval_id, "approve")
        assert error.value.code == code


async def test_a_word_that_is_no_answer_is_refused(world: World) -> None:
    waiting, approval = await paused(world)

    with pytest.raises(HoldfastError) as error:
        await world.engine().decide(waiting.run_id, approval.id, "maybe")

    assert error.value.code == "config_invalid"


def write_more(turn: Turn) -> None:
    """Each attempt leaves a file of its own and keeps those of the attempts before."""
    turn.write(f"made-{len(list(turn.root.glob('made-*'))) + 1}.txt", "made\n")
    turn.hand_in()


async def test_after_changes_were_requested_everything_since_the_accepted_state_is_asked_for(world: World) -> None:
    phases = ("plan", phase("spec", risk="high"))
    waiting, first = await paused(world, write_more, *phases)
    await world.engine(write_more).decide(waiting.run_id, first.id, "request_changes", "one more file", "ann")

    again = await world.engine(write_more).resume(waiting.run_id)

    assert again.state is RunStatus.PAUSED
    [second] = await world.approvals(waiting.run_id)
    assert first.shown["files"] == ["made-2.txt", "out/spec.json"]
    assert second.shown["files"] == ["made-2.txt", "made-3.txt", "out/spec.json"]
    assert "made-1.txt" not in second.shown["diff"]
    assert "made-2.txt" in second.shown["diff"]
    assert "before-spec" not in second.shown["diff"]
    assert "since_answer" not in first.shown
    since = second.shown["since_answer"]
    assert (since["approval_id"], since["attempt"], since["comment"], since["by"]) == (
        first.id,
        1,
        "one more file",
        "ann",
    )
    assert since["files"] == ["made-3.txt"]
    assert (since["added"], since["removed"]) == (1, 0)
    assert "made-3.txt" in since["diff"]
    assert "made-2.txt" not in since["diff"]


async def test_the_accepted_state_is_the_same_for_another_process_and_after_a_failed_attempt(world: World) -> None:
    def script(turn: Turn) -> None:
        write_more(turn)
        if len(world.turns) == 2:
            raise RuntimeError("no luck")

    waiting, first = await paused(world, script, phase("spec", risk="high", attempts=2))
    await world.engine(script).decide(waiting.run_id, first.id, "request_changes", "more", "ann")
    await world.engine(script, db=world.open_database()).resume(waiting.run_id)

    [second] = await world.approvals(waiting.run_id)
    assert second.attempt == 3
    assert second.shown["files"] == ["made-1.txt", "made-2.txt", "made-3.txt", "out/spec.json"]
    assert second.shown["since_answer"]["files"] == ["made-2.txt", "made-3.txt"]


async def test_what_was_edited_while_it_waited_is_in_the_change_that_is_asked_for(world: World) -> None:
    waiting, _approval = await paused(world)
    (world.worktree(waiting.run_id) / "by-hand.txt").write_text("edited\n")

    await world.engine().resume(waiting.run_id)

    [new_approval] = await world.approvals(waiting.run_id)
    assert "by-hand.txt" in new_approval.shown["diff"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"risk": "high"}, "phase spec has risk high"),
        ({"risk": "low", "approval": "always"}, "the workflow always asks for approval after phase spec"),
        ({"risk": "critical"}, "phase spec has risk critical, for which two different people must approve"),
    ],
)
async def test_an_approval_says_why_it_is_asked(world: World, options: dict[str, Any], why: str) -> None:
    _waiting, approval = await paused(world, hand_in, phase("spec", **options))

    assert approval.shown["reason"] == why


async def test_what_was_edited_while_it_waited_and_then_approved_is_the_result_of_the_phase(world: World) -> None:
    waiting, _approval = await paused(world, hand_in, phase("spec", risk="high"))
    (world.worktree(waiting.run_id) / "by-hand.txt").write_text("edited\n")
    await world.engine().resume(waiting.run_id)
    [new_approval] = await world.approvals(waiting.run_id)
    await world.engine().decide(waiting.run_id, new_approval.id, "approve", digest=new_approval.digest)

    result = await world.engine().resume(waiting.run_id)

    assert result.state is RunStatus.COMPLETED
    [row] = await world.select(RunPhaseRow, result.run_id)
    assert "by-hand.txt" in world.git("ls-tree", "--name-only", row.tree)
    assert world.git("rev-parse", f"{row.snapshot}^{{tree}}").strip() == row.tree


async def edited(world: World, approval: Any, run_id: Any, **changes: Any) -> str:
    """An approval with another text of the artifact; the text."""
    text = json.dumps(artifact(str(run_id), "spec", **changes), indent=1)
    await world.engine().decide(run_id, approval.id, "approve", by="ann", digest=approval.digest, artifact=text)
    return text


async def test_an_artifact_edited_with_the_answer_is_what_the_next_phase_gets(world: World) -> None:
    waiting, approval = await paused(world)

    text = await edited(world, approval, waiting.run_id, approach="As a person wrote it.")
    result = await world.engine().resume(waiting.run_id)

    assert result.state is RunStatus.COMPLETED
    assert (world.worktree(waiting.run_id) / "out/spec.json").read_text() == text
    rows = [row for row in await world.select(ArtifactRow, result.run_id) if row.phase_key == "spec"]
    assert [(row.turn, row.content == text) for row in sorted(rows, key=lambda row: row.turn)] == [
        (1, False),
        (3, True),
    ]
    events = world.events(result.run_id)
    accepted = [e.payload for e in events if e.kind == "artifact.accepted" and e.payload["phase"] == "spec"]
    assert [payload.get("by") for payload in accepted] == [None, "ann"]
    [done] = [e.payload for e in events if e.kind == "phase.completed" and e.payload["phase"] == "spec"]
    assert done["artifact_hash"] == accepted[-1]["hash"]
    assert world.git("show", f"{done['tree']}:out/spec.json") == text


async def test_a_crash_after_the_edit_was_written_asks_nobody_again(world: World) -> None:
    waiting, approval = await paused(world)
    text = await edited(world, approval, waiting.run_id, approach="As a person wrote it.")
    (world.worktree(waiting.run_id) / "out/spec.json").write_text(text)  # and its process died here

    result = await world.engine().resume(waiting.run_id)

    assert result.state is RunStatus.COMPLETED
    assert len(await world.approvals(result.run_id, "")) == 1


async def test_an_edit_does_not_excuse_other_changes(world: World) -> None:
    waiting, approval = await paused(world)
    await edited(world, approval, waiting.run_id, approach="As a person wrote it.")
    (world.worktree(waiting.run_id) / "sneaked-in.txt").write_text("later\n")

    result = await world.engine().resume(waiting.run_id)

    assert result.state is RunStatus.PAUSED
    assert len(await world.approvals(result.run_id)) == 1


@pytest.mark.parametrize(
    ("action", "text", "code"),
    [
        ("approve", "{}", "artifact_invalid"),
        ("approve", "no json", "artifact_invalid"),
        ("reject", "{}", "config_invalid"),
        ("request_changes", "{}", "config_invalid"),
    ],
)
async def test_an_edit_that_cannot_count_is_refused_and_the_question_stands(
    world: World, action: str, text: str, code: str
) -> None:
    waiting, approval = await paused(world)

    with pytest.raises(HoldfastError) as refused:
        await world.engine().decide(waiting.run_id, approval.id, action, artifact=text)

    assert refused.value.code == code
    assert len(await world.approvals(waiting.run_id)) == 1


async def test_an_edit_from_elsewhere_that_beats_the_callback_counts_with_its_text(world: World) -> None:
    other = world.open_database()

    async def slow(request: ApprovalRequest) -> str:
        text = json.dumps(artifact(request.run_id, "spec", approach="From elsewhere, by a person."))
        await world.engine(db=other).decide(request.run_id, request.approval_id, "approve", by="ann", artifact=text)
        return "reject"

    result = await world.run(hand_in, phase("spec", risk="high"), engine={"callback": slow})

    assert result.state is RunStatus.COMPLETED
    assert "From elsewhere" in (world.worktree(result.run_id) / "out/spec.json").read_text()
