"""Which phases run when, and what each is told of the others."""

import asyncio

from tests.support.engine_world import Turn, World, hand_in, phase, template

from holdfast.enums import RunStatus


async def test_an_envelope_names_its_phase_and_earlier_artifacts_and_nothing_later(world: World) -> None:
    await world.run(hand_in, "outline", "draft", "polish", requirements_md="A fine text.")

    outline, draft, polish = [turn.envelope for turn in world.turns]
    for word in ("draft", "polish"):
        assert word not in outline
    assert "out/outline.json" in draft
    assert "draft" in draft
    assert "polish" not in draft
    assert "out/outline.json" in polish
    assert "out/draft.json" in polish
    assert all("A fine text." in envelope for envelope in (outline, draft, polish))


async def test_a_phase_is_told_only_of_what_it_needs(world: World) -> None:
    await world.run(hand_in, "outline", phase("draft", needs=[]), phase("polish", needs=["outline"]))

    envelopes = {turn.phase_key: turn.envelope for turn in world.turns}
    assert "outline" not in envelopes["draft"]
    assert "draft" not in envelopes["polish"]


async def test_a_phase_waits_for_everything_it_needs(world: World) -> None:
    await world.run(
        hand_in, phase("last", needs=["second"]), phase("first", needs=[]), phase("second", needs=["first"])
    )

    assert world.phases_done() == ["first", "second", "last"]


async def test_reading_phases_run_beside_each_other(world: World) -> None:
    meeting = asyncio.Barrier(3)

    async def script(turn: Turn) -> None:
        if turn.phase_key != "spec":
            await meeting.wait()  # none gets past it alone
        turn.hand_in()

    readers = [phase(key, needs=["spec"], read_only=True) for key in ("security", "style", "tests")]
    result = await world.run(script, "spec", *readers)

    assert result.state is RunStatus.COMPLETED
    assert [item.state.value for item in result.phases] == ["completed"] * 4


async def test_writing_phases_run_one_at_a_time_even_if_nothing_orders_them(world: World) -> None:
    inside: list[str] = []

    async def script(turn: Turn) -> None:
        inside.append(turn.phase_key)
        await asyncio.sleep(0)
        assert inside == [turn.phase_key]
        turn.hand_in()
        inside.remove(turn.phase_key)

    result = await world.run(script, *(phase(key, needs=[]) for key in ("one", "two", "three")))

    assert result.state is RunStatus.COMPLETED
    assert world.phases_done() == ["one", "two", "three"]


async def test_a_failed_reader_does_not_stop_the_work_of_the_others(world: World) -> None:
    failed = asyncio.Event()

    async def script(turn: Turn) -> None:
        if turn.phase_key == "style":
            failed.set()
            raise RuntimeError("no style")
        await failed.wait()
        turn.hand_in()

    readers = [phase(key, needs=[], read_only=True) for key in ("security", "style")]
    result = await world.run(script, *readers)

    assert result.state is RunStatus.FAILED
    assert await world.phase_states(result.run_id) == {"security": "completed", "style": "failed"}


async def test_phases_after_each_other_may_write_the_same_file(world: World) -> None:
    shared = {"expected_artifact": {"path": "out/spec.json", "schema": "dev/spec@1"}}
    seen: list[str] = []

    def script(turn: Turn) -> None:
        if turn.phase_key == "refined":
            seen.extend(path.name for path in (turn.root / "out").iterdir())
            assert f"out/{seen[0]}" in turn.envelope
        turn.hand_in()

    result = await world.run(script, template=template(phase("rough", **shared), phase("refined", **shared)))

    assert result.state is RunStatus.COMPLETED
    assert seen == ["spec.json.before-refined-1"]
