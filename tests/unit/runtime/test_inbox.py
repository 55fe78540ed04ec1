"""Unread events of a run: first in, first out for each name, each read once."""

from typing import Any

import pytest

from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.inbox import Inbox


def sent(seq: int, **payload: Any) -> Event:
    return Event("r", seq=seq, kind=EventKind.EVENT_RECEIVED, payload=payload)


def test_each_name_has_a_queue_of_its_own() -> None:
    inbox = Inbox()
    for event in (sent(1, name="a", data=1), sent(2, name="b", data=2), sent(3, name="a", data=3)):
        inbox.add(event)

    assert [inbox.take(name) for name in ("a", "b", "a", "a")] == [(1, "a", 1), (2, "b", 2), (3, "a", 3), None]


def test_an_event_that_is_folded_again_after_it_was_read_stays_read() -> None:
    inbox = Inbox()
    inbox.add(sent(1, name="a", data=1))
    inbox.take("a")
    inbox.add(sent(1, name="a", data=1))

    assert inbox.take("a") is None


def test_what_a_wait_has_read_is_no_longer_there() -> None:
    inbox = Inbox()
    inbox.add(sent(1, name="a", data=1))
    inbox.add(sent(2, name="a", data=2))

    assert inbox.take_from({"name": "a", "event": 2}) == 2
    assert inbox.take("a") == (1, "a", 1)


@pytest.mark.parametrize("payload", [{}, {"name": 3}, {"name": None, "data": 1}, {"dedup_id": "x"}])
def test_garbage_is_no_event(payload: dict[str, Any]) -> None:
    inbox = Inbox()
    inbox.add(sent(1, **payload))

    assert inbox.take_from({}) is None
    assert inbox.take_from({"name": "a", "event": [1]}) is None
    assert not inbox.has_seen("x")
