"""Numbers and hashes: a chain goes on from its head, and shows every change against it."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.enums import RunStatus
from holdfast.errors import JournalCorrupt, LeaseLost, SequenceConflict
from holdfast.runtime.checkpoint.base import Append, Prepared, prepare
from holdfast.runtime.checkpoint.hash_chain import Head, RawRow, check_epoch, decode, extend, extend_by_step, genesis
from holdfast.runtime.events import Event, create_event


def new_head(seq: int = 0) -> Head:
    return Head(seq, genesis("r"), RunStatus.PENDING, epoch=1)


def prepared(*seqs: int, kind: str = "agent.progress") -> list[Prepared]:
    return [
        prepare(Event("r", kind=kind, seq=seq, span_id=f"s{index}", ts=1.5, payload={"n": index}))
        for index, seq in enumerate(seqs)
    ]


def raw_rows(*seqs: int) -> tuple[list[RawRow], Head]:
    head = new_head()
    return [(row.seq, row.kind, row.body, row.hash) for row in extend(head, prepared(*seqs))], head


def read(rows: list[RawRow]) -> tuple[list[Event], bytes]:
    return decode("r", rows, genesis("r"), lambda digests: {})


@given(st.lists(st.integers(0, 3), max_size=20))
def test_numbers_go_up_by_one_or_as_given(steps: list[int]) -> None:
    expected: list[int] = []
    seqs: list[int] = []
    for step in steps:
        last = expected[-1] if expected else 0
        seqs.append(last + step if step else 0)
        expected.append(last + (step or 1))
    head = new_head()

    rows = extend(head, prepared(*seqs))

    assert [row.seq for row in rows] == expected
    assert head.seq == (expected[-1] if expected else 0)


@pytest.mark.parametrize("seq", [None, "2", b"2", -1, 1 << 64])
def test_a_number_that_damage_made_is_an_error(seq: object) -> None:
    rows, _ = raw_rows(0, 0)
    damaged: list[RawRow] = [rows[0], (seq, *rows[1][1:])]  # type: ignore[arg-type]

    with pytest.raises(JournalCorrupt):
        read(damaged)


@pytest.mark.parametrize("seqs", [(5,), (4,), (1,), (6, 6), (7, 0, 8), (0, 0, 3)])
def test_a_number_that_comes_too_late_leaves_the_head_as_it_was(seqs: tuple[int, ...]) -> None:
    head = new_head(5)

    with pytest.raises(SequenceConflict) as caught:
        extend(head, prepared(*seqs))

    assert head == new_head(5)
    assert caught.value.facts["run_id"] == "r"


def test_the_head_follows_the_status() -> None:
    head = new_head()
    for kind, status in [
        ("run.started", RunStatus.RUNNING),
        ("run.paused", RunStatus.PAUSED),
        ("agent.progress", RunStatus.PAUSED),
        ("run.completed", RunStatus.COMPLETED),
        ("run.paused", RunStatus.COMPLETED),
    ]:
        extend(head, prepared(0, kind=kind))
        assert head.status == status


@given(st.integers(0, 6), st.integers(0, 6))
def test_a_chain_in_two_parts_is_the_chain_in_one(first: int, second: int) -> None:
    events = prepared(*[0] * (first + second))
    whole, parts = new_head(), new_head()

    rows = extend(whole, events)

    assert extend(parts, events[:first]) + extend(parts, events[first:]) == rows
    assert whole == parts


def test_an_owner_of_an_earlier_epoch_is_refused() -> None:
    check_epoch(Append("r", [], epoch=1), new_head())
    check_epoch(Append("r", [], epoch=None), new_head())
    with pytest.raises(LeaseLost):
        check_epoch(Append("r", [], epoch=0), new_head())


def test_what_was_chained_decodes_to_the_events() -> None:
    rows, head = raw_rows(0, 0, 7, 0)

    events, last_hash = read(rows)

    assert [(event.seq, event.payload["n"]) for event in events] == [(1, 0), (2, 1), (7, 2), (8, 3)]
    assert last_hash == head.hash


@given(st.integers(0, 3), st.data())
def test_any_changed_bit_of_a_body_is_found(index: int, data: st.DataObject) -> None:
    rows, _ = raw_rows(0, 0, 0, 0)
    seq, kind, body, row_hash = rows[index]
    bit = data.draw(st.integers(0, len(body) * 8 - 1))
    changed = bytearray(body)
    changed[bit // 8] ^= 1 << bit % 8
    rows[index] = (seq, kind, bytes(changed), row_hash)

    with pytest.raises(JournalCorrupt) as caught:
        read(rows)

    assert caught.value.facts == {"run_id": "r", "seq": seq}


@pytest.mark.parametrize("order", [[1, 2, 3], [0, 2, 3], [1, 0, 2, 3], [0, 1, 3, 2], [0, 0, 1, 2, 3]])
def test_lost_moved_and_doubled_rows_are_found(order: list[int]) -> None:
    rows, _ = raw_rows(0, 0, 0, 0)

    with pytest.raises(JournalCorrupt):
        read([rows[index] for index in order])


def test_a_lost_last_row_shows_in_the_last_hash() -> None:
    rows, head = raw_rows(0, 0, 0)

    assert read(rows[:-1])[1] != head.hash


def test_a_row_without_a_hash_is_accepted_and_the_chain_begins_anew_after_it() -> None:
    by_hand = (1, "agent.progress", prepared(1)[0].body, b"")
    head = Head(1, b"", RunStatus.PENDING)
    rows = [by_hand, *((row.seq, row.kind, row.body, row.hash) for row in extend(head, prepared(0, 0)))]

    events, last_hash = read(rows)

    assert [event.seq for event in events] == [1, 2, 3]
    assert last_hash == head.hash


@pytest.mark.parametrize("body", [b"[]", b"7", b"{", b"null", b'{"kind":7}', b'{"kind":"other"}', b"\xff", b'"x"'])
def test_a_row_without_a_hash_that_is_no_event_is_an_error(body: bytes) -> None:
    with pytest.raises(JournalCorrupt) as caught:
        read([(1, "agent.progress", body, b"")])

    assert caught.value.facts["seq"] == 1


def test_run_and_number_are_part_of_the_hash() -> None:
    event = create_event("r", "agent.progress")
    other = dataclasses.replace(event, run_id="other")

    mine = extend(new_head(), [prepare(event)])[0].hash

    assert mine != extend(Head(0, genesis("other"), RunStatus.PENDING), [prepare(other)])[0].hash
    assert mine != extend(new_head(), [prepare(dataclasses.replace(event, seq=2))])[0].hash


def test_the_short_way_for_a_step_makes_the_same_row_and_head() -> None:
    short, general = new_head(4), new_head(4)
    (event,) = prepared(0, kind="step.completed")

    assert [extend_by_step(short, event)] == extend(general, [event])
    assert short == general
