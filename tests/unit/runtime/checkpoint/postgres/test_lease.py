"""How many renewals a process missed, by its own count."""

import time
from collections.abc import Callable
from typing import Any, cast

from tests.support.progress_limit import wait_until

from holdfast.errors import StoreUnavailable
from holdfast.runtime.checkpoint.base import Claim
from holdfast.runtime.checkpoint.postgres.lease import LeaseKeeper, Outages

LEASE_S = 0.6


class SessionAway:
    """A session whose server is out of reach."""

    def __init__(self) -> None:
        self.attempts = 0

    def run(self, _work: Callable[..., object], *, patience_s: float) -> object:
        self.attempts += 1
        raise StoreUnavailable("The database cannot be reached.")

    def drop_unused(self) -> None:
        """Nothing is open."""

    def close(self, *, is_waiting: bool) -> None:
        """Nothing is open."""


def test_a_missed_renewal_counts_once_for_all_runs_and_attempts() -> None:
    session = SessionAway()
    keeper = LeaseKeeper(cast(Any, session), LEASE_S, Outages(LEASE_S))
    began = time.monotonic()
    keeper.add([Claim(f"run-{number}", 1, 1) for number in range(4)], began)
    wait_until(lambda: session.attempts >= 12)
    keeper.close()
    intervals = (time.monotonic() - began) / (LEASE_S / 3)
    assert 1 <= keeper.missed <= min(session.attempts, intervals)
