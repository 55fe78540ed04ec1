"""How far an owner knows its journal, whoever writes beside it and in whichever order its appends are answered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Context, run_flow
from holdfast.runtime.checkpoint.memory import InMemoryCheckpointer
from holdfast.runtime.run_log import HeadTracker, RunLog


def test_nothing_but_own_appends_leaves_no_gap() -> None:
    tracker = HeadTracker(3)

    tracker.note_own([4, 5])
    tracker.note_own([])
    tracker.note_own([6])

    assert (tracker.head, tracker.has_gap) == (6, False)


def test_another_writers_number_is_a_gap_until_it_is_read() -> None:
    tracker = HeadTracker(0)

    tracker.note_own([2, 3])
    assert (tracker.head, tracker.has_gap) == (0, True)

    tracker.note_read(1)
    assert (tracker.head, tracker.has_gap) == (3, False)


@st.composite
def journals(draw: st.DrawFn) -> tuple[int, list[tuple[str, list[int]]]]:
    """Draw where the owner begins, and in which order own appends are answered and the journal is read.

    The appends of a run lie one after the other; a stranger's are never answered to the owner. A read at any time
    finds a beginning of the journal.
    """
    start = draw(st.integers(0, 3))
    appends = draw(st.lists(st.tuples(st.booleans(), st.integers(1, 3)), max_size=12))
    own, end = [], start
    for is_own, count in appends:
        if is_own:
            own.append(list(range(end + 1, end + count + 1)))
        end += count
    answers: list[tuple[str, list[int]]] = [("own", numbers) for numbers in draw(st.permutations(own))]
    for _ in range(draw(st.integers(0, 4))):
        answers.insert(draw(st.integers(0, len(answers))), ("read", [draw(st.integers(0, end))]))
    return start, answers


@given(journals())
def test_the_head_is_the_last_number_without_an_unknown_one_before_it(
    journal: tuple[int, list[tuple[str, list[int]]]],
) -> None:
    start, answers = journal
    tracker = HeadTracker(start)
    known = set(range(start + 1))

    for what, numbers in answers:
        if what == "own":
            tracker.note_own(numbers)
            known.update(numbers)
        else:
            tracker.note_read(numbers[0])
            known.update(range(numbers[0] + 1))

        head = next(number for number in range(len(known) + 1) if number + 1 not in known)
        assert tracker.head == head
        assert tracker.has_gap == (max(known) > head)


async def test_a_call_is_in_flight_from_its_announcement_until_it_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    store = InMemoryCheckpointer()

    def look(log: RunLog, _key: str, moment: str) -> None:
        seen.append((moment, log.has_call_in_flight))

    async def flow(ctx: Context) -> bool:
        return await ctx.step("call", lambda: True)

    monkeypatch.setattr(RunLog, "probe", look)
    await run_flow(flow, store=store)

    assert seen == [("before", True), ("after", True), ("recorded", True)]
