"""Other personas and requirements for a run that is there: written whole, told in the journal."""

import asyncio
from typing import Any

import pytest
from tests.support.engine_world import Turn, World, hand_in, personas, phase, template

from holdfast.enums import Backend, RunStatus
from holdfast.errors import (
    ConsentRequired,
    PersonaIneligible,
    RunAlreadyTerminal,
    RunBusy,
    RunNotInState,
    SequenceConflict,
)
from holdfast.persistence.models import RunBindingRow
from holdfast.persona import AgentPersona
from holdfast.runtime.journal import Journal

TWO_ROLES = {
    "roles": [
        {"id": "author", "required_capabilities": ["spec_write"]},
        {"id": "checker", "required_capabilities": ["spec_write"]},
    ]
}


def other(name: str = "another-writer", **changes: Any) -> AgentPersona:
    """A persona of the same backend, by another name."""
    first = next(one for one in personas() if one.backend is Backend.OPENROUTER and "spec_write" in one.capabilities)
    return first.model_copy(update={"name": name, "model": "another-model", **changes})


def pool(*more: AgentPersona) -> dict[str, Any]:
    return {"pool": (*personas(), *(more or (other(),)))}


def fail(turn: Turn) -> None:
    raise RuntimeError("no")


async def names_bound(world: World, run_id: Any) -> dict[str, str]:
    rows = await world.select(RunBindingRow, run_id)
    return {row.role_id: row.explanation.split(" ")[0] for row in rows}


async def test_a_retry_with_other_requirements_tells_the_agent_of_them(world: World) -> None:
    failed = await world.run(fail, requirements_md="Do this.")

    result = await world.engine().retry(failed.run_id, requirements_md="Do that.", by="ann")

    assert result.state is RunStatus.COMPLETED
    assert ("Do this." in world.turns[0].envelope, "Do that." in world.turns[1].envelope) == (True, True)
    assert (await world.run_row(failed.run_id)).requirements_md == "Do that."
    (changed,) = world.events(failed.run_id, "run.changed")
    assert (changed.payload["by"], changed.payload["requirements_md"]) == ("ann", "Do that.")
    assert changed.payload["reopened"] == []


async def test_a_retry_with_another_persona_binds_that_one_role(world: World) -> None:
    failed = await world.run(fail, template=template(phase("spec"), phase("check", role="checker"), **TWO_ROLES))
    before = await names_bound(world, failed.run_id)

    await world.engine(**pool()).retry(failed.run_id, persona_overrides={"author": "another-writer"}, by="ann")

    assert [turn.persona.name for turn in world.turns[1:]] == ["another-writer", before["checker"]]
    assert await names_bound(world, failed.run_id) == {**before, "author": "another-writer"}
    (changed,) = world.events(failed.run_id, "run.changed")
    assert changed.payload["personas"]["author"]["before"] == before["author"]


async def test_an_attempt_under_way_starts_anew_from_its_files_and_not_from_its_work(world: World) -> None:
    def half(turn: Turn) -> None:
        turn.write("app.py", "print('half done')\n")

    run_id = await world.run_and_stop(half, "spec", requirements_md="Do this.")

    seen: list[str] = []

    def look(turn: Turn) -> None:
        seen.append((turn.root / "app.py").read_text())
        turn.hand_in()

    result = await world.engine(look).resume(run_id, requirements_md="Do that.")

    assert (result.state, result.phases[0].attempts) == (RunStatus.COMPLETED, 2)
    assert "Do that." in world.turns[-1].envelope
    assert seen == [(world.repo / "app.py").read_text()]
    (reopened,) = world.events(run_id, "phase.reopened")
    assert (reopened.payload["phase"], reopened.payload["reason"]) == ("spec", "run_changed")


async def test_what_is_not_concerned_goes_on_where_it_was(world: World) -> None:
    made = template(phase("spec"), phase("check", role="checker"), **TWO_ROLES)
    run_id = await world.run_and_stop(lambda turn: None, template=made)

    result = await world.engine(**pool()).resume(run_id, persona_overrides={"checker": "another-writer"})

    assert [(one.key, one.attempts) for one in result.phases] == [("spec", 1), ("check", 1)]
    assert world.turns[-1].persona.name == "another-writer"
    assert world.events(run_id, "phase.reopened") == []


async def test_a_question_about_what_is_given_up_is_taken_back(world: World) -> None:
    paused = await world.run(hand_in, phase("spec", approval="always"), phase("plan"), requirements_md="Do this.")
    [approval] = await world.approvals(paused.run_id)

    again = await world.engine().resume(paused.run_id, requirements_md="Do that.")

    assert again.state is RunStatus.PAUSED
    assert [row.id for row in await world.approvals(paused.run_id, "superseded")] == [approval.id]
    [new] = await world.approvals(paused.run_id)
    assert (new.attempt, world.phases_done()) == (2, ["spec", "spec"])
    await world.engine().decide(paused.run_id, new.id, "approve")
    assert (await world.engine().resume(paused.run_id)).state is RunStatus.COMPLETED


async def test_completed_phases_stay(world: World) -> None:
    paused = await world.run(hand_in, "spec", phase("plan", approval="always"), requirements_md="Do this.")

    await world.engine().resume(paused.run_id, requirements_md="Do that.")

    assert world.phases_done() == ["spec", "plan", "plan"]


async def test_the_same_again_is_no_change(world: World) -> None:
    failed = await world.run(fail, requirements_md="Do this.")
    name = (await names_bound(world, failed.run_id))["author"]

    change = await world.engine().change(
        failed.run_id, is_retry=True, requirements_md="Do this.", persona_overrides={"author": name}
    )

    assert not change
    assert change.describe().startswith("Nothing is different")
    assert world.events(failed.run_id, "run.changed") == []


@pytest.mark.parametrize(
    ("overrides", "refusal"),
    [
        ({"author": "nobody"}, PersonaIneligible),
        ({"ghost": "another-writer"}, PersonaIneligible),
        ({"author": "simulated-developer"}, PersonaIneligible),
        ({"author": "shy"}, ConsentRequired),
    ],
)
async def test_who_cannot_be_had_is_refused_and_nothing_is_written(
    world: World, overrides: dict[str, str], refusal: type[Exception]
) -> None:
    failed = await world.run(fail, requirements_md="Do this.")
    before = len(world.events(failed.run_id))
    engine = world.engine(**pool(other(), other("shy", requires_consent=True)))

    with pytest.raises(refusal):
        await engine.retry(failed.run_id, persona_overrides=overrides, requirements_md="Do that.")

    assert len(world.events(failed.run_id)) == before
    assert (await world.run_row(failed.run_id)).requirements_md == "Do this."


async def test_a_rehearsal_stays_one(world: World) -> None:
    rehearsal = {"backends": frozenset({Backend.SIMULATED})}
    failed = await world.run(fail, engine=rehearsal)

    with pytest.raises(PersonaIneligible, match="not available"):
        await world.engine(**pool()).retry(failed.run_id, persona_overrides={"author": "another-writer"})


async def test_only_a_run_that_can_go_on_is_changed(world: World) -> None:
    done = await world.run(hand_in)
    failed = await world.run(fail)

    with pytest.raises(RunAlreadyTerminal):
        await world.engine().resume(done.run_id, requirements_md="Do that.")
    with pytest.raises(RunAlreadyTerminal):
        await world.engine().change(failed.run_id, requirements_md="Do that.")
    with pytest.raises(RunNotInState):
        await world.engine().retry(done.run_id, requirements_md="Do that.")
    assert (await world.run_row(done.run_id)).requirements_md == ""


async def test_a_run_that_is_driven_is_busy(world: World) -> None:
    reached, going_on = asyncio.Event(), asyncio.Event()

    async def wait(turn: Turn) -> None:
        reached.set()
        await going_on.wait()
        turn.hand_in()

    driving = asyncio.create_task(world.run(wait, requirements_md="Do this."))
    await reached.wait()
    [run_id] = world.db.store.list_runs()

    with pytest.raises(RunBusy):
        await world.engine().change(run_id, requirements_md="Do that.")
    going_on.set()
    assert (await driving).state is RunStatus.COMPLETED


async def test_dying_at_the_append_leaves_all_or_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    paused = await world.run(hand_in, phase("spec", approval="always"), requirements_md="Do this.")
    append = Journal.append

    async def die(*args: Any, **options: Any) -> Any:
        raise SequenceConflict("the machine went down")

    monkeypatch.setattr(Journal, "append", die)
    with pytest.raises(SequenceConflict):
        await world.engine().change(paused.run_id, requirements_md="Do that.")
    monkeypatch.setattr(Journal, "append", append)

    assert (await world.run_row(paused.run_id)).requirements_md == "Do this."
    assert await world.phase_states(paused.run_id) == {"spec": "awaiting_approval"}
    await world.engine().change(paused.run_id, requirements_md="Do that.")
    # As after a kill between the change and the drive: whoever resumes goes on with it.
    assert (await world.engine().resume(paused.run_id)).state is RunStatus.PAUSED
    assert "Do that." in world.turns[-1].envelope


async def test_a_fork_has_its_own_personas_and_requirements(world: World) -> None:
    original = await world.run(hand_in, "spec", "plan", requirements_md="Do this.")

    fork = await world.engine(**pool()).fork(
        original.run_id,
        "plan",
        requirements_md="Do that.",
        persona_overrides={"author": "another-writer"},
        started_by="ann",
    )

    assert (fork.state, world.phases_done()) == (RunStatus.COMPLETED, ["spec", "plan", "plan"])
    assert ("Do that." in world.turns[-1].envelope, world.turns[-1].persona.name) == (True, "another-writer")
    rows = [await world.run_row(run_id) for run_id in (original.run_id, fork.run_id)]
    assert [row.requirements_md for row in rows] == ["Do this.", "Do that."]
    (created,) = world.events(fork.run_id, "run.created")
    assert created.payload["changed"] == {"personas": {"author": "another-writer"}, "requirements": True}
    assert created.payload["started_by"] == "ann"
