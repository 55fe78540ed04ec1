"""How often a run was taken from an owner that died is counted with the claim, on every store that knows of deaths."""

import pytest
from tests.support.stores import Place, progress

from holdfast.runtime.checkpoint.base import MOST_TAKEOVERS, Claim, JournalStore

pytestmark = pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)
_OWN_AND_DIE = """
import os
store.claim("r")
os._exit(9)
"""


def _take_from_a_dead_one(place: Place, store: JournalStore) -> Claim:
    process = place.start_process(_OWN_AND_DIE)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 9, errors
    claim = store.claim("r")
    store.release(claim)
    return claim


def test_each_takeover_is_counted_with_where_the_journal_ended(place: Place) -> None:
    store: JournalStore = place.open()  # type: ignore[assignment]
    store.save_event(progress())

    assert store.claim("r").takeovers == ()
    store.release_many([store.claim("r", force=True)])
    counted = [_take_from_a_dead_one(place, store) for _ in range(2)]
    store.save_event(progress())
    counted += [_take_from_a_dead_one(place, store) for _ in range(2)]

    assert [claim.is_takeover for claim in counted] == [True] * 4
    assert [claim.takeovers for claim in counted] == [(1,), (1, 1), (1, 1, 2), (1, 2, 2)]
    assert MOST_TAKEOVERS == 3
    orderly = store.claim("r")
    assert (orderly.is_takeover, orderly.takeovers) == (False, ())
    assert len({claim.epoch for claim in [*counted, orderly]}) == 5
