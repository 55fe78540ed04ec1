"""Going on with a run: what is checked first, what is skipped, what is replayed and what is done."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession
from tests.support.engine_jobs import note
from tests.support.engine_processes import Zygote
from tests.support.engine_world import Turn, Unserialisable, World, hand_in, personas, phase, template
from tests.support.stored_run import insert_run

from holdfast.enums import RunStatus
from holdfast.errors import HoldfastError, StoreBusy
from holdfast.persistence.db import Database


async def code_of_resume(world: World, run_id: Any) -> str:
    with pytest.raises(HoldfastError) as error:
        await world.engine().resume(run_id)
    return error.value.code


async def test_what_is_wrong_with_a_stored_run_is_found_in_the_contracts_order(world: World) -> None:
    """Each run has every later fault as well, so only the order decides which is told."""
    nowhere = str(world.folder / "no-repository")
    faults: dict[str, Any] = {"definition": {"name": 7}, "repo_path": nowhere}
    done = [
        await insert_run(world, {"spec": "pending"}, state=state, has_bindings=False, **faults)
        for state in ("completed", "failed", "cancelled")
    ]
    unbound = await insert_run(world, {"spec": "pending"}, has_bindings=False, **faults)
    unreadable = await insert_run(world, {"spec": "pending"}, **faults)
    no_json = await insert_run(world, {"spec": "pending"}, definition="{no JSON")

    assert await code_of_resume(world, uuid.uuid4()) == "run_not_found"
    assert [await code_of_resume(world, run_id) for run_id in done] == ["run_already_terminal"] * 3
    assert await code_of_resume(world, unbound) == "run_metadata_missing"
    assert await code_of_resume(world, unreadable) == "template_load_failed"
    assert await code_of_resume(world, no_json) == "template_load_failed"
    for run_id in (*done, unbound, unreadable, no_json):
        assert world.db.store.list_events(run_id) == []
        assert world.open_database().store.claim(run_id)  # nobody has it
    assert world.turns == []


@pytest.mark.parametrize("state", ["pending", "running", "paused"])
async def test_a_run_of_bare_rows_goes_on_with_its_first_phase_that_is_not_completed(world: World, state: str) -> None:
    run_id = await insert_run(world, {"spec": "completed", "plan": "running", "code": "pending"}, state=state)

    result = await world.engine().resume(run_id)

    assert result.state is RunStatus.COMPLETED
    assert world.phases_done() == ["plan", "code"]
    kinds = await world.kinds(run_id)
    assert kinds[kinds.index("run.resumed") + 1] == "phase.skipped"
    assert kinds.count("phase.skipped") == 1
    assert kinds[-1] == "run.completed"


async def test_a_failed_or_pending_phase_opens_a_new_attempt_whatever_was_tried_before(world: World) -> None:
    async def script(_turn: Turn) -> None:
        raise RuntimeError("no luck")

    failed = await world.run(script, "spec", "plan")
    for attempt, state in ((2, "failed"), (3, "pending")):
        await world.sql("UPDATE runs SET state = 'running' WHERE id = :id", id=str(failed.run_id))
        await world.sql(
            "UPDATE run_phases SET state = :state WHERE run_id = :id AND phase_key = 'spec'",
            state=state,
            id=str(failed.run_id),
        )
        again = await world.engine(script).resume(failed.run_id)
        assert (again.state, again.phases[0].attempts) == (RunStatus.FAILED, attempt)

    assert len(world.turns) == 3


async def test_a_resumed_run_says_so_and_skips_what_is_completed(world: World) -> None:
    waiting = await world.run(hand_in, "spec", phase("plan", risk="high"), "code")
    [approval] = await world.approvals(waiting.run_id)
    await world.engine().decide(waiting.run_id, approval.id, "approve")
    before = len(world.events(waiting.run_id))

    result = await world.engine().resume(str(waiting.run_id))

    later = [event for event in world.events(waiting.run_id) if event.seq > before]
    assert result.state is RunStatus.COMPLETED
    assert [str(event.kind) for event in later[:2]] == ["run.resumed", "phase.skipped"]
    assert later[1].payload["phase"] == "spec"
    assert world.phases_done() == ["spec", "plan", "code"]


async def test_a_running_phase_continues_its_attempt_and_repeats_no_tool_call(world: World) -> None:
    """The process ends in the middle of a turn: the next one gets recorded results in place of calls."""
    effects: list[str] = []
    results: list[Any] = []

    async def work(turn: Turn) -> None:
        for name in ("fetch", "deploy"):
            results.append(await turn.use_tool(name, lambda name=name: effects.append(name) or Unserialisable(name)))

    async def work_and_hand_in(turn: Turn) -> None:
        await work(turn)
        turn.hand_in()

    run_id = await world.run_and_stop(work)
    states = ((await world.run_row(run_id)).state, await world.phase_states(run_id))
    result = await world.engine(work_and_hand_in).resume(run_id)

    assert states == ("running", {"spec": "running"})
    assert result.state is RunStatus.COMPLETED
    assert result.phases[0].attempts == 1
    assert effects == ["fetch", "deploy"]
    assert [item.value for item in results[:2]] == ["fetch", "deploy"]
    assert ["done, result not recorded" in str(item.content) for item in results[2:]] == [True, True]
    assert [turn.envelope for turn in world.turns] == [world.turns[0].envelope] * 2


async def test_a_shutdown_leaves_the_run_running_and_without_an_owner(world: World) -> None:
    run_id = await world.run_and_stop(lambda _turn: None)

    assert (await world.run_row(run_id)).state == "running"
    assert (await world.engine(db=world.open_database()).resume(run_id)).state is RunStatus.COMPLETED


@pytest.mark.parametrize("is_deleted", [False, True], ids=["edited", "deleted"])
async def test_a_persona_is_the_one_that_was_bound_whatever_became_of_its_file(world: World, is_deleted: bool) -> None:
    waiting = await world.run(hand_in, phase("spec", risk="high"), "plan")
    [approval] = await world.approvals(waiting.run_id)
    await world.engine().decide(waiting.run_id, approval.id, "approve")
    bound = world.turns[0].persona
    edited = tuple(
        item.model_copy(update={"system_prompt": "Something else."}) if item.name == bound.name else item
        for item in personas()
    )

    result = await world.engine(pool=() if is_deleted else edited).resume(waiting.run_id)

    assert result.state is RunStatus.COMPLETED
    assert world.turns[1].persona == bound


async def test_an_envelope_stays_as_it_was_when_the_attempt_began(world: World) -> None:
    """Requirements edited in the row count for phases that have not begun, not for the one under way."""
    run_id = await world.run_and_stop(lambda _turn: None, "spec", requirements_md="As it was.")
    await world.sql("UPDATE runs SET requirements_md = 'Changed.' WHERE id = :id", id=run_id)

    await world.engine().resume(run_id)

    assert world.turns[1].envelope == world.turns[0].envelope


async def test_tries_are_counted_over_a_restart(world: World) -> None:
    async def fails_at_first(_turn: Turn) -> None:
        if len(world.turns) == 1:
            raise RuntimeError("first")

    async def fails(_turn: Turn) -> None:
        raise RuntimeError("again")

    run_id = await world.run_and_stop(fails_at_first, phase("spec", attempts=2))

    result = await world.engine(fails).resume(run_id)

    assert result.state is RunStatus.FAILED
    assert result.phases[0].attempts == 2


# -- owners -----------------------------------------------------------------------------------------------------------


async def test_of_two_resumes_at_the_same_moment_one_is_busy(world: World) -> None:
    waiting = await world.run(hand_in, phase("spec", risk="high"), "plan")
    [approval] = await world.approvals(waiting.run_id)
    await world.engine().decide(waiting.run_id, approval.id, "approve")
    engines = [world.engine(db=db) for db in (world.db, world.db, world.open_database())]

    results = await asyncio.gather(*(engine.resume(waiting.run_id) for engine in engines), return_exceptions=True)

    codes = sorted(item.code if isinstance(item, HoldfastError) else item.state.value for item in results)  # type: ignore[union-attr]
    assert codes in (["completed", "run_busy", "run_busy"], ["completed", "run_already_terminal", "run_busy"])
    assert world.phases_done() == ["spec", "plan"]


async def test_a_live_owners_run_is_busy_elsewhere_and_a_dead_ones_can_be_resumed_at_once(
    world: World, zygote: Zygote
) -> None:
    run_id = str(uuid.uuid4())
    owner = zygote.start(world, "run_and_hang", run_id, "two_tools")
    owner.wait_for(world.folder / "is-hanging")
    world.know(template("spec"))
    codes = [await code_of_resume(world, run_id)]
    elsewhere = zygote.start(world, "verb", "resume", template("spec").model_dump(by_alias=True), run_id).wait()
    owner.kill()

    async def script(turn: Turn) -> None:
        await turn.use_tool("deploy", lambda: pytest.fail("deployed twice"))
        await turn.use_tool(
            "write_file", lambda: pytest.fail("written twice"), file_path="/half.txt", content="half done\n"
        )
        assert (turn.root / "half.txt").read_text() == "half done\n"
        turn.hand_in()

    result = await world.engine(script).resume(run_id)

    assert codes == ["run_busy"]
    assert elsewhere is not None
    assert elsewhere["code"] == "run_busy"
    assert result.state is RunStatus.COMPLETED
    assert result.phases[0].attempts == 1
    assert (world.folder / "effects").read_text() == "deploy\nwrite\n"


async def test_a_zombie_is_refused_and_stops(world: World) -> None:
    """Another process has taken the run over while this one still believes that it has it."""
    both, cancelled = asyncio.Barrier(2), asyncio.Event()

    async def script(turn: Turn) -> None:
        await both.wait()
        if turn.phase_key == "style":
            world.open_database().store.claim(turn.run_id, force=True)
            turn.hand_in()
            return
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    readers = [phase(key, needs=[], read_only=True) for key in ("style", "tests")]
    with pytest.raises(HoldfastError) as error:
        await world.run(script, *readers)

    assert error.value.code == "lease_lost"
    assert cancelled.is_set()
    [run_id] = world.db.store.list_runs()
    assert (await world.run_row(run_id)).state == "running"
    assert "artifact.written" not in await world.kinds(run_id)


@pytest.mark.parametrize(
    ("action", "state", "calls"),
    [("approve", "completed", 2), ("reject", "failed", 1), ("abort", "cancelled", 1), ("result", "completed", 1)],
)
async def test_a_call_that_was_in_flight_at_a_kill_is_decided_by_a_person(
    world: World, zygote: Zygote, action: str, state: str, calls: int
) -> None:
    run_id = str(uuid.uuid4())
    owner = zygote.start(world, "run_and_hang", run_id, "tool_in_flight")
    owner.wait_for(world.folder / "is-hanging")
    owner.kill()
    results: list[Any] = []

    async def script(turn: Turn) -> None:
        results.append(await turn.use_tool("charge", lambda: note(world, "charge")))
        turn.hand_in()

    world.know(template("spec"))
    waiting = await world.engine(script).resume(run_id)
    [question] = await world.approvals(run_id)
    still = await world.engine(script).resume(run_id)
    if action == "result":
        await world.engine().decide(run_id, question.id, "approve", result="charged 5")
    else:
        await world.engine().decide(run_id, question.id, action)
    result = await world.engine(script).resume(run_id)

    assert (waiting.state, still.state) == (RunStatus.PAUSED, RunStatus.PAUSED)
    assert (await world.run_row(run_id)).pause_reason is None
    assert question.about == "outcome"
    assert result.state.value == state
    assert (world.folder / "effects").read_text().count("charge") == calls
    if state == "failed":
        assert result.error is not None
        assert result.error.code == "tool_outcome_unknown"
    if action == "result":
        assert results[0].content == "charged 5"


class OneConnection(Database):
    """Has a connection that somebody holds, who lets go of it once another one was refused."""

    def __init__(self, url: str) -> None:
        super().__init__(url, connections=1, wait_s=0.1)
        self.held = contextlib.AsyncExitStack()
        self.refusals = 0

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[AsyncSession]:
        try:
            async with super().session() as session:
                yield session
        except StoreBusy:
            self.refusals += 1
            await self.held.aclose()
            raise


async def test_a_database_that_does_not_answer_is_no_failure_of_the_phase(world: World) -> None:
    """Whoever is asked answers too late, and after the faster answer there is no free connection for the rest."""
    small = OneConnection(world.url)

    async def is_too_late(request: Any) -> str:
        await world.engine().decide(request.run_id, request.approval_id, "approve")
        await (await small.held.enter_async_context(Database.session(small))).execute(text("SELECT 1"))
        return "reject"

    result = await world.run(hand_in, phase("spec", risk="medium"), engine={"db": small, "callback": is_too_late})
    await small.dispose()

    assert (result.state, result.phases[0].attempts, small.refusals) == (RunStatus.COMPLETED, 1, 1)
